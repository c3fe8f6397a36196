// Tables in which heads, tokens or the two elements of a pair have entries of their own, and settings that make such
// tables.
#include <gtest/gtest.h>

#include <random>

#include "posenc/exact/real.h"
#include "posenc/rotary/rotary_plan.h"
#include "tests/service/call.h"

namespace posenc::pair_elements_test {
namespace {

constexpr int64_t kSequences = 2, kTokens = 5, kHeads = 3, kHeadDim = 14, kOffset = 1, kDim = 12, kPairs = kDim / 2;

std::vector<double> Random(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(static_cast<int64_t>(random() >> 40)) / (1 << 23) - 1;
  return values;
}

// A pair's elements, by definition.
std::pair<int64_t, int64_t> ElementsOf(v1::Pairing pairing, int64_t parts, int64_t pair) {
  if (pairing == v1::PAIRING_INTERLEAVED) return {2 * pair, 2 * pair + 1};
  const int64_t half = kPairs / parts, first = pair / half * 2 * half + pair % half;
  return {first, first + half};
}

struct Asked {
  DType dtype = DType::kFP32;
  v1::PrecisionPreset preset = v1::PRECISION_PRESET_EXACT;
  v1::Pairing input = v1::PAIRING_HALF_SPLIT, output = v1::PAIRING_HALF_SPLIT;
  int64_t parts = 1;
  v1::Layout layout = v1::LAYOUT_BSHD;
  v1::Direction direction = v1::DIRECTION_FORWARD;
};

// Without a table.
v1::ApplyRotaryRequest Request(const Asked& asked) {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->set_input_pairing(asked.input);
  settings->set_output_pairing(asked.output);
  settings->set_half_split_parts(asked.parts);
  request.mutable_precision()->set_preset(asked.preset);
  request.set_layout(asked.layout);
  request.set_direction(asked.direction);
  request.mutable_positions()->set_offset(2);
  auto* q = request.mutable_q();
  q->set_rotary_offset(kOffset);
  const bool heads_first = asked.layout == v1::LAYOUT_BHSD;
  *q->mutable_tensor() =
      MakeTensor(asked.dtype, {kSequences, heads_first ? kHeads : kTokens, heads_first ? kTokens : kHeads, kHeadDim},
                 Random(kSequences * kTokens * kHeads * kHeadDim, 7));
  return request;
}

v1::GivenTable& TableOf(v1::ApplyRotaryRequest& request) {
  return *request.mutable_rotary()->mutable_settings()->mutable_given_table();
}

// q by the formula, one rounding after the other. entry(sequence, token, head) is the place of its first entry.
template <class Entry>
std::string Expected(const Asked& asked, const v1::ApplyRotaryRequest& request, const std::vector<double>& cos,
                     const std::vector<double>& sin, const Entry& entry) {
  const bool each = asked.preset == v1::PRECISION_PRESET_HF_EAGER;
  const DType table = each ? asked.dtype : DType::kFP32;
  const auto rounded = [&](float value) {
    return each ? static_cast<float>(reference::Round(asked.dtype, value)) : value;
  };
  const std::vector<double> x = Unpack(asked.dtype, request.q().tensor().data());
  std::vector<double> y = x;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const int64_t row = asked.layout == v1::LAYOUT_BHSD ? (sequence * kHeads + head) * kTokens + token
                                                            : (sequence * kTokens + token) * kHeads + head;
        const int64_t start = row * kHeadDim + kOffset, at = entry(sequence, token, head);
        const auto value = [&](const std::vector<double>& entries, int64_t element) {
          return static_cast<float>(reference::Round(table, entries[at + element]));
        };
        for (int64_t pair = 0; pair < kPairs; ++pair) {
          const auto [a, b] = ElementsOf(asked.input, asked.parts, pair);
          const auto [out_a, out_b] = ElementsOf(asked.output, asked.parts, pair);
          float sin_a = value(sin, a), sin_b = value(sin, b);
          if (asked.direction == v1::DIRECTION_TRANSPOSE) {  // the matrix [c_a, -s_a; s_b, c_b], transposed
            std::swap(sin_a, sin_b);
            sin_a = -sin_a;
            sin_b = -sin_b;
          }
          const auto x_a = static_cast<float>(x[start + a]), x_b = static_cast<float>(x[start + b]);
          const float first = rounded(x_a * value(cos, a)) - rounded(x_b * sin_a);
          const float second = rounded(x_b * value(cos, b)) + rounded(x_a * sin_b);
          y[start + out_a] = first;
          y[start + out_b] = second;
        }
      }
    }
  }
  return Pack(asked.dtype, y);
}

std::vector<Asked> Variants() {
  std::vector<Asked> all;
  for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
    for (const auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
      for (const auto input : {v1::PAIRING_INTERLEAVED, v1::PAIRING_HALF_SPLIT}) {
        for (const auto output : {v1::PAIRING_INTERLEAVED, v1::PAIRING_HALF_SPLIT}) {
          for (const int64_t parts : {1, 3}) {
            for (const auto layout : {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD}) {
              for (const auto direction : {v1::DIRECTION_FORWARD, v1::DIRECTION_TRANSPOSE}) {
                all.push_back({dtype, preset, input, output, parts, layout, direction});
              }
            }
          }
        }
      }
    }
  }
  return all;
}

bool SaysNoRotation(const v1::AnswerInfo& info) {
  return std::any_of(info.notes().begin(), info.notes().end(),
                     [](const v1::Note& note) { return note.code() == "NOT_A_ROTATION"; });
}

TEST(PairElements, ATablePerElementIsTakenAsItIs) {
  constexpr int64_t kRows = 9;
  const std::vector<double> cos = Random(kRows * kDim, 1), sin = Random(kRows * kDim, 2);
  for (const Asked& asked : Variants()) {
    v1::ApplyRotaryRequest request = Request(asked);
    *TableOf(request).mutable_cos() = MakeTensor(DType::kFP32, {kRows, kDim}, cos);
    *TableOf(request).mutable_sin() = MakeTensor(DType::kFP32, {kRows, kDim}, sin);
    TableOf(request).set_form(v1::TABLE_FORM_PER_ELEMENT);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const auto entry = [](int64_t, int64_t token, int64_t) { return (2 + token) * kDim; };
    EXPECT_EQ(response->q().data(), Expected(asked, request, cos, sin, entry));
    EXPECT_TRUE(SaysNoRotation(response->info()));
    request.set_direction(v1::DIRECTION_INVERSE);
    EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", "direction"));
  }
}

TEST(PairElements, RowsAreByTokenAndHead) {
  for (const bool per_head : {false, true}) {
    const int64_t of_token = kDim * (per_head ? kHeads : 1);
    const std::vector<double> cos = Random(kSequences * kTokens * of_token, 3),
                              sin = Random(kSequences * kTokens * of_token, 4);
    std::vector<int64_t> shape = {kSequences, kTokens, kDim};
    if (per_head) shape.insert(shape.end() - 1, kHeads);
    for (const Asked& asked : Variants()) {
      v1::ApplyRotaryRequest request = Request(asked);
      *TableOf(request).mutable_cos() = MakeTensor(DType::kFP32, shape, cos);
      *TableOf(request).mutable_sin() = MakeTensor(DType::kFP32, shape, sin);
      TableOf(request).set_form(v1::TABLE_FORM_PER_ELEMENT);
      TableOf(request).set_per_head(per_head);
      EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "positions"));
      request.clear_positions();
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      EXPECT_EQ(response->q().data(), Expected(asked, request, cos, sin, [&](int64_t b, int64_t s, int64_t head) {
                  return (b * kTokens + s) * of_token + (per_head ? head * kDim : 0);
                }));
    }
  }
}

// A table whose pairs have equal entries is a rotation, in whatever form.
TEST(PairElements, EqualEntriesAreARotation) {
  constexpr int64_t kRows = 9;
  for (const auto pairing : {v1::PAIRING_INTERLEAVED, v1::PAIRING_HALF_SPLIT}) {
    const std::vector<double> half = Random(kRows * kHeads * kPairs, 5);
    std::vector<double> whole(2 * half.size());
    for (size_t row = 0; row < half.size() / kPairs; ++row) {
      for (int64_t pair = 0; pair < kPairs; ++pair) {
        const auto [a, b] = ElementsOf(pairing, 2, pair);
        whole[row * kDim + a] = whole[row * kDim + b] = half[row * kPairs + pair];
      }
    }
    v1::ApplyRotaryRequest request = Request({.input = pairing, .output = pairing, .parts = 2});
    TableOf(request).set_per_head(true);
    const auto call = [&](int64_t width, const std::vector<double>& values, v1::TableForm form) {
      *TableOf(request).mutable_cos() = MakeTensor(DType::kBF16, {kRows, kHeads, width}, values);
      *TableOf(request).mutable_sin() = TableOf(request).cos();
      TableOf(request).set_form(form);
      return Call(request);
    };
    const auto expected = call(kPairs, half, v1::TABLE_FORM_HALF_WIDTH);
    const auto response = call(kDim, whole, v1::TABLE_FORM_PER_ELEMENT);
    const auto form =
        pairing == v1::PAIRING_INTERLEAVED ? v1::TABLE_FORM_REPEAT_INTERLEAVED : v1::TABLE_FORM_DUPLICATED;
    const auto repeated = call(kDim, whole, form);
    for (const auto* other : {&response, &repeated}) {
      ASSERT_THAT(*other, IsOk());
      EXPECT_EQ((*other)->q().data(), expected->q().data());
      EXPECT_EQ((*other)->info().plan_fingerprint(), expected->info().plan_fingerprint());
      EXPECT_FALSE(SaysNoRotation((*other)->info()));
    }
    whole[3] += 1;
    EXPECT_THAT(call(kDim, whole, form), IsInvalid("MISMATCH", "rotary.settings.given_table.cos"));
    EXPECT_TRUE(SaysNoRotation(call(kDim, whole, v1::TABLE_FORM_PER_ELEMENT)->info()));
  }
}

v1::GenerateTableRequest Table(v1::RotarySettings settings, DType dtype, int64_t axes) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary()->mutable_settings() = std::move(settings);
  std::vector<double> ids = Random(7 * axes, 11);
  for (double& id : ids) id = std::floor(id * 4000) / 8;
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {7, axes}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  request.set_dtype(Wire(dtype));
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

// cos or sin of the exact sum, rounded once.
double OfSum(bool cosine, const std::vector<double>& f, const std::vector<double>& p, size_t first_f, size_t first_p,
             size_t terms, DType dtype) {
  const RealPrecision wide(1200);
  Real sum(0.0), product;
  for (size_t j = 0; j < terms; ++j) {
    mpfr_set_d(product.get(), f[first_f + j], MPFR_RNDN);
    mpfr_mul_d(product.get(), product.get(), p[first_p + j], MPFR_RNDN);
    mpfr_add(sum.get(), sum.get(), product.get(), MPFR_RNDN);
  }
  cosine ? mpfr_cos(sum.get(), sum.get(), MPFR_RNDN) : mpfr_sin(sum.get(), sum.get(), MPFR_RNDN);
  const int bits = dtype == DType::kFP64 ? 53 : dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
  mpfr_prec_round(sum.get(), bits, MPFR_RNDN);  // no results of these inputs are subnormal
  return mpfr_get_d(sum.get(), MPFR_RNDN);
}

TEST(PairElements, EachHeadSumsOverTheAxes) {
  constexpr int64_t kAxes = 3, kRows = 7;
  const std::vector<double> f = Random(kHeads * kPairs * kAxes, 12);
  v1::RotarySettings settings;
  settings.set_input_pairing(v1::PAIRING_INTERLEAVED);
  auto* given = settings.mutable_given_frequencies();
  given->mutable_inv_freq()->Assign(f.begin(), f.end());
  given->set_heads(kHeads);
  given->set_axes(kAxes);
  for (const DType dtype : {DType::kFP64, DType::kFP32, DType::kFP16, DType::kBF16}) {
    v1::GenerateTableRequest request = Table(settings, dtype, kAxes);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(std::vector<int64_t>(response->cos().shape().begin(), response->cos().shape().end()),
              (std::vector<int64_t>{kRows, kHeads, kPairs}));
    const std::vector<double> p = Unpack(DType::kFP64, request.positions().ids().data());
    std::vector<double> cos, sin;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t n = 0; n < kHeads * kPairs; ++n) {
        cos.push_back(OfSum(true, f, p, n * kAxes, row * kAxes, kAxes, dtype));
        sin.push_back(OfSum(false, f, p, n * kAxes, row * kAxes, kAxes, dtype));
      }
    }
    EXPECT_EQ(response->cos().data(), Pack(dtype, cos));
    EXPECT_EQ(response->sin().data(), Pack(dtype, sin));

    // Each head alone has the same table, and a given table with its rows rotates alike.
    request.set_form(v1::TABLE_FORM_PER_ELEMENT);
    const auto whole = Call(request);
    ASSERT_THAT(whole, IsOk());
    if (dtype != DType::kFP32) continue;
    v1::ApplyRotaryRequest rotation = Request({.input = v1::PAIRING_INTERLEAVED, .output = v1::PAIRING_INTERLEAVED});
    *rotation.mutable_rotary()->mutable_settings() = settings;
    const std::vector<double> ids(p.begin(), p.begin() + kTokens * kAxes);
    *rotation.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kTokens, kAxes}, ids);
    rotation.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
    const auto by_frequencies = Call(rotation);
    ASSERT_THAT(by_frequencies, IsOk());
    rotation.mutable_rotary()->mutable_settings()->clear_given_frequencies();
    *TableOf(rotation).mutable_cos() = whole->cos();
    *TableOf(rotation).mutable_sin() = whole->sin();
    TableOf(rotation).set_form(v1::TABLE_FORM_PER_ELEMENT);
    TableOf(rotation).set_per_head(true);
    rotation.mutable_positions()->set_offset(0);
    rotation.mutable_positions()->clear_axis_dimension();
    const auto by_table = Call(rotation);
    ASSERT_THAT(by_table, IsOk());
    EXPECT_EQ(by_table->q().data(), by_frequencies->q().data());
  }
}

// With table_pairing, an element has the angle of its pair by that pairing.
TEST(PairElements, AnglesCanBeLaidOutByAnotherPairing) {
  v1::RotarySettings settings;
  for (int axis = 0; axis < 3; ++axis) settings.mutable_axial()->add_axes()->set_dim(4);
  for (const auto& [input, by] : {std::pair{v1::PAIRING_INTERLEAVED, v1::PAIRING_HALF_SPLIT},
                                  {v1::PAIRING_HALF_SPLIT, v1::PAIRING_INTERLEAVED}}) {
    for (const int64_t parts : {1, 3}) {
      settings.set_input_pairing(input);
      settings.set_half_split_parts(parts);
      settings.clear_table_pairing();
      const auto plain = Call(Table(settings, DType::kFP32, 3));
      ASSERT_THAT(plain, IsOk());
      settings.set_table_pairing(by);
      v1::GenerateTableRequest request = Table(settings, DType::kFP32, 3);
      EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", "form"));
      request.set_form(v1::TABLE_FORM_PER_ELEMENT);
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      EXPECT_TRUE(SaysNoRotation(response->info()));
      const std::vector<double> of_pair = Unpack(DType::kFP32, plain->cos().data());
      std::vector<double> of_element(2 * of_pair.size());
      for (size_t row = 0; row < of_pair.size() / kPairs; ++row) {
        for (int64_t pair = 0; pair < kPairs; ++pair) {
          const auto [a, b] = ElementsOf(by, parts, pair);
          of_element[row * kDim + a] = of_element[row * kDim + b] = of_pair[row * kPairs + pair];
        }
      }
      EXPECT_EQ(response->cos().data(), Pack(DType::kFP32, of_element));
    }
  }
}

// HunyuanVL: sections of elements; element e has the frequency of pair e mod P.
TEST(PairElements, SectionsCanBeOfElements) {
  v1::RotarySettings settings;
  settings.set_rotary_dim(kDim);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  auto* parameters = settings.mutable_rope_parameters();
  parameters->set_rope_type("default");
  parameters->set_mrope_order(v1::MROPE_ORDER_ELEMENTS);
  for (const int section : {1, 3, 2}) parameters->add_mrope_section(section);
  v1::GenerateTableRequest request = Table(settings, DType::kFP64, 3);
  request.set_form(v1::TABLE_FORM_PER_ELEMENT);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const std::vector<double> p = Unpack(DType::kFP64, request.positions().ids().data());
  const std::vector<double> cos = Unpack(DType::kFP64, response->cos().data());
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t e = 0; e < kDim; ++e) {
      const int64_t axis = e < 2 ? 0 : e < 8 ? 1 : 2;
      const double f = std::pow(10000.0, -2.0 * static_cast<double>(e % kPairs) / kDim);
      EXPECT_NEAR(cos[row * kDim + e], std::cos(p[row * 3 + axis] * f), 1e-12);
    }
  }
}

// HunyuanImage 3: the axes alternate over the frequencies of the whole width.
TEST(PairElements, AxesAlternateByFrequency) {
  for (const Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat32}) {
    RotarySettings whole, alternating;
    whole.frequencies = RopeParameters{.rope_type = "default", .rope_theta = 10000};
    whole.rotary_dim = 128;
    alternating.frequencies = AxialRope{{{64, 10000, 0}, {64, 10000, 0.5}}, true};
    whole.input_pairing = alternating.input_pairing = Pairing::kHalfSplit;
    const auto expected = Rotary::Create(whole, arithmetic, {})->Plan(0);
    const auto plan = Rotary::Create(alternating, arithmetic, {})->Plan(0);
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ((*plan)->inv_freq, (*expected)->inv_freq);
    for (size_t pair = 0; pair < 64; ++pair) EXPECT_EQ((*plan)->axis[pair], static_cast<int64_t>(pair % 2));
  }
}

#define SETTINGS "rotary.settings."
TEST(PairElements, ContradictionsAreRefused) {
  v1::ApplyRotaryRequest request = Request({});
  auto* settings = request.mutable_rotary()->mutable_settings();
  const std::vector<double> values(4 * 2 * kPairs, 0.5);
  *TableOf(request).mutable_cos() = *TableOf(request).mutable_sin() = MakeTensor(DType::kFP32, {4, 2, kPairs}, values);
  TableOf(request).set_form(v1::TABLE_FORM_HALF_WIDTH);
  TableOf(request).set_per_head(true);
  request.mutable_positions()->set_offset(0);
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "q.tensor.shape"));
  TableOf(request).set_per_head(false);
  request.clear_positions();
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", SETTINGS "given_table.cos.shape"));  // [B, S] is [4, 2]
  settings->set_table_pairing(v1::PAIRING_INTERLEAVED);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "table_pairing"));
  settings->clear_table_pairing();
  settings->mutable_query_scale()->set_function(v1::QUERY_SCALE_FUNCTION_BEAM);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "query_scale"));
  settings->clear_query_scale();

  auto* given = settings->mutable_given_frequencies();
  for (int64_t n = 0; n < 2 * kPairs; ++n) given->add_inv_freq(0.25);
  request.mutable_positions()->set_offset(0);
  given->set_axes(0);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", SETTINGS "given_frequencies.axes"));
  given->set_axes(5);
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", SETTINGS "given_frequencies.inv_freq"));
  given->set_axes(2);
  EXPECT_THAT(Call(request), IsOk());
  given->set_attention_scaling(2);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "given_frequencies.attention_scaling"));
  given->clear_attention_scaling();
  settings->set_table_pairing(v1::PAIRING_INTERLEAVED);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "table_pairing"));
  settings->clear_table_pairing();
  given->add_axis(0);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "given_frequencies.axis"));
  given->clear_axis();
  given->set_axes(1);
  given->set_heads(2);
  settings->mutable_xpos()->set_centre(0);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", SETTINGS "xpos"));
}

// Other RPCs take one angle for each pair.
TEST(PairElements, OtherCallsRefuseThem) {
  v1::RotarySettings elements, heads;
  elements.mutable_rope_parameters()->set_rope_type("default");
  elements.set_rotary_dim(kDim);
  elements.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  elements.set_table_pairing(v1::PAIRING_INTERLEAVED);
  heads.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  for (int n = 0; n < 6; ++n) heads.mutable_given_frequencies()->add_inv_freq(0.5);
  heads.mutable_given_frequencies()->set_heads(3);
  for (const auto& [settings, field] : {std::pair{&elements, "table_pairing"}, {&heads, "given_frequencies.heads"}}) {
    v1::AnalyzeRequest analyze;
    *analyze.mutable_rotary()->mutable_settings() = *settings;
    EXPECT_THAT(Call(analyze), IsInvalid("UNSUPPORTED", std::string(SETTINGS) + field));
    v1::CompareRequest compare;
    *compare.mutable_a()->mutable_rotary() = *settings;
    *compare.mutable_b()->mutable_rotary() = *settings;
    EXPECT_THAT(Call(compare), IsInvalid("UNSUPPORTED", std::string("a.rotary.") + field));
    v1::DiagnoseRequest diagnose;
    *diagnose.mutable_expected()->mutable_settings() = *settings;
    EXPECT_THAT(Call(diagnose), IsInvalid("UNSUPPORTED", std::string("expected.settings.") + field));
    v1::ExplainRequest explain;
    *explain.mutable_rotary() = *settings;
    const auto explained = Call(explain);
    ASSERT_THAT(explained, IsOk());
    EXPECT_EQ(SaysNoRotation(explained->layers(0).info()), settings == &elements);
    const std::string second = explained->layers(0).text_size() > 0 && explained->layers(0).text(0).sentence_size() > 1
                                   ? explained->layers(0).text(0).sentence(1)
                                   : "";
    EXPECT_EQ(second.starts_with("This is no rotation"), settings == &elements);
  }
}

}  // namespace
}  // namespace posenc::pair_elements_test
