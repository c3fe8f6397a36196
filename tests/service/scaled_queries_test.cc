// Rotations with query_scale: which elements are multiplied, by what, and where they are rounded.
#include <gtest/gtest.h>

#include "posenc/methods/rope/query_scale.h"
#include "posenc/service/rotary_stream.h"
#include "tests/service/call.h"

namespace posenc::scaled_queries_test {
namespace {

constexpr int64_t kTokens = 5, kHeads = 2, kWidth = 12, kRotated = 8, kOffset = 2;
// Below, at and above the first factor that is not 1.
const std::vector<double> kPositions = {0, 8190, 8191, 20000, 131071};
constexpr v1::QueryScaleFunction kFunctions[] = {v1::QUERY_SCALE_FUNCTION_LLAMA4, v1::QUERY_SCALE_FUNCTION_MINISTRAL3,
                                                 v1::QUERY_SCALE_FUNCTION_BEAM, v1::QUERY_SCALE_FUNCTION_LOGN};

v1::QueryScale Scale(v1::QueryScaleFunction function) {
  v1::QueryScale scale;
  scale.set_function(function);
  if (function == v1::QUERY_SCALE_FUNCTION_LLAMA4) {
    scale.set_attn_scale(0.1);
    scale.set_floor_scale(8192);
  } else if (function == v1::QUERY_SCALE_FUNCTION_MINISTRAL3) {
    scale.set_llama_4_scaling_beta(0.1);
    scale.set_original_max_position_embeddings(8191);
  } else if (function == v1::QUERY_SCALE_FUNCTION_LOGN) {
    scale.set_seq_length(8191);
  }
  return scale;
}

std::vector<double> Factors(v1::QueryScaleFunction function, Frequencies arithmetic, bool reciprocal = false) {
  const std::map<v1::QueryScaleFunction, QueryScale> scales = {
      {v1::QUERY_SCALE_FUNCTION_LLAMA4, {QueryScaleFunction::kLlama4, 0.1, 8192}},
      {v1::QUERY_SCALE_FUNCTION_MINISTRAL3,
       {.function = QueryScaleFunction::kMinistral3,
        .llama_4_scaling_beta = 0.1,
        .original_max_position_embeddings = 8191}},
      {v1::QUERY_SCALE_FUNCTION_BEAM, {QueryScaleFunction::kBeam}},
      {v1::QUERY_SCALE_FUNCTION_LOGN, {.function = QueryScaleFunction::kLogn, .seq_length = 8191}}};
  return QueryFactors(arithmetic, scales.at(function), kPositions, 1, reciprocal);
}

v1::ApplyRotaryRequest Apply(DType dtype, v1::QueryScaleFunction function) {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  for (const double frequency : {1.0, 0.1, 0.01, 0.001}) {
    settings->mutable_given_frequencies()->add_inv_freq(frequency);
  }
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  if (function != v1::QUERY_SCALE_FUNCTION_UNSPECIFIED) *settings->mutable_query_scale() = Scale(function);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kTokens}, kPositions);
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> x;
  for (int64_t n = 0; n < kTokens * kHeads * kWidth; ++n) x.push_back(static_cast<double>(n * n % 97) / 8 - 6);
  *request.mutable_q()->mutable_tensor() = MakeTensor(dtype, {kTokens, kHeads, kWidth}, x);
  request.mutable_q()->set_rotary_offset(kOffset);
  *request.mutable_k() = request.q();
  return request;
}

double Rounded(DType dtype, double value) { return Unpack(dtype, Pack(dtype, {value}))[0]; }

// The rotated elements are those of a rotation whose attention scaling is the factor; the others are multiplied.
TEST(ScaledQueries, ExactFactorsTakeTheAttentionScalingsPlace) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (const auto function : kFunctions) {
      for (const auto direction : {v1::DIRECTION_FORWARD, v1::DIRECTION_TRANSPOSE, v1::DIRECTION_INVERSE}) {
        v1::ApplyRotaryRequest request = Apply(dtype, function);
        request.set_direction(direction);
        request.mutable_rotary()->mutable_settings()->mutable_given_frequencies()->set_attention_scaling(1.25);
        const auto scaled = Call(request);
        ASSERT_THAT(scaled, IsOk());
        request.mutable_rotary()->mutable_settings()->clear_query_scale();
        EXPECT_EQ(scaled->k().data(), Call(request)->k().data());
        const std::vector<double> got = ValuesOf(scaled->q()), x = ValuesOf(request.q().tensor());
        const auto factors = Factors(function, Frequencies::kExact, direction == v1::DIRECTION_INVERSE);
        const auto multipliers = QueryFactors(Frequencies::kExact, {QueryScaleFunction::kBeam}, kPositions, 1.25);
        for (int64_t token = 0; token < kTokens; ++token) {
          v1::ApplyRotaryRequest one = request;
          const double product = 1.25 * Factors(function, Frequencies::kExact)[token];
          one.mutable_rotary()->mutable_settings()->mutable_given_frequencies()->set_attention_scaling(
              function == v1::QUERY_SCALE_FUNCTION_BEAM ? multipliers[token] : product);
          const std::vector<double> rotated = ValuesOf(Call(one)->q());
          for (int64_t n = token * kHeads * kWidth; n < (token + 1) * kHeads * kWidth; ++n) {
            const int64_t element = n % kWidth;
            const bool rotates = element >= kOffset && element < kOffset + kRotated;
            const float multiplied = static_cast<float>(x[n]) * static_cast<float>(factors[token]);
            const double want = rotates ? rotated[n] : Rounded(dtype, multiplied);
            // 1.25 * s(p), rounded to float64 once more than the product, may round another way, in rare cases.
            EXPECT_NEAR(got[n], want, rotates ? std::fabs(want) * 0x1p-23 : 0) << function << " " << n;
          }
        }
      }
    }
  }
}

// As in the models' code: the rotated row is rounded, the factor too if rounds_factor says so, and then their product.
TEST(ScaledQueries, OtherPrecisionsRoundTheRotatedRowFirst) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (const auto function : kFunctions) {
      for (const bool rounds : {false, true}) {
        v1::ApplyRotaryRequest request = Apply(dtype, function);
        request.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
        request.mutable_rotary()->mutable_settings()->mutable_query_scale()->set_rounds_factor(rounds);
        const auto scaled = Call(request);
        ASSERT_THAT(scaled, IsOk());
        request.mutable_rotary()->mutable_settings()->clear_query_scale();
        const auto plain = Call(request);
        EXPECT_EQ(scaled->k().data(), plain->k().data());
        const std::vector<double> got = ValuesOf(scaled->q()), rotated = ValuesOf(plain->q());
        const auto factors = Factors(function, Frequencies::kFloat32);
        for (size_t n = 0; n < got.size(); ++n) {
          const double factor = factors[n / (kHeads * kWidth)];
          const auto by = static_cast<float>(rounds ? Rounded(dtype, factor) : factor);
          EXPECT_EQ(got[n], Rounded(dtype, static_cast<float>(rotated[n]) * by)) << function << " " << n;
        }
      }
    }
  }
}

TEST(ScaledQueries, WithoutFrequenciesNothingRotates) {
  v1::ApplyRotaryRequest request = Apply(DType::kBF16, v1::QUERY_SCALE_FUNCTION_LLAMA4);
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->clear_given_frequencies();
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "rotary.settings.input_pairing"));
  settings->clear_input_pairing();
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "q.rotary_offset"));
  request.mutable_q()->clear_rotary_offset();
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "k.rotary_offset"));
  request.mutable_k()->clear_rotary_offset();
  for (const auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32}) {
    request.mutable_precision()->set_preset(preset);
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    EXPECT_FALSE(answer->info().rotated());
    EXPECT_EQ(answer->k().data(), request.k().tensor().data());
    const std::vector<double> got = ValuesOf(answer->q()), x = ValuesOf(request.q().tensor());
    const auto factors = Factors(v1::QUERY_SCALE_FUNCTION_LLAMA4, Frequencies::kExact);
    for (size_t n = 0; n < got.size(); ++n) {
      const auto factor = static_cast<float>(factors[n / (kHeads * kWidth)]);
      EXPECT_EQ(got[n], Rounded(DType::kBF16, static_cast<float>(x[n]) * factor)) << n;
    }
  }
  settings->set_half_split_parts(2);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "rotary.settings.half_split_parts"));
  settings->clear_half_split_parts();
  settings->clear_query_scale();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "rotary.settings.frequencies"));
}

// The other layouts have the same elements in another order, and chunks of a stream the same bytes.
TEST(ScaledQueries, LayoutsAndChunksAgree) {
  for (const auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
    for (const bool rotates : {true, false}) {
      v1::ApplyRotaryRequest packed = Apply(DType::kBF16, v1::QUERY_SCALE_FUNCTION_BEAM);
      packed.mutable_precision()->set_preset(preset);
      if (!rotates) {
        packed.mutable_rotary()->mutable_settings()->clear_given_frequencies();
        packed.mutable_rotary()->mutable_settings()->clear_input_pairing();
        packed.mutable_q()->clear_rotary_offset();
      }
      packed.clear_k();
      const std::string want = Call(packed)->q().data();

      v1::ApplyRotaryRequest heads_first = packed;
      heads_first.set_layout(v1::LAYOUT_BHSD);
      v1::Tensor& x = *heads_first.mutable_q()->mutable_tensor();
      x.mutable_shape()->Clear();
      for (const int64_t size : {int64_t{1}, kHeads, kTokens, kWidth}) x.add_shape(size);
      constexpr size_t row = kWidth * 2;
      const auto turned = [](const std::string& from, bool back) {
        std::string to(from.size(), '\0');
        for (int64_t token = 0; token < kTokens; ++token) {
          for (int64_t head = 0; head < kHeads; ++head) {
            const size_t a = (token * kHeads + head) * row, b = (head * kTokens + token) * row;
            to.replace(back ? a : b, row, from, back ? b : a, row);
          }
        }
        return to;
      };
      x.set_data(turned(packed.q().tensor().data(), false));
      EXPECT_EQ(turned(Call(heads_first)->q().data(), true), want);

      v1::ApplyRotaryRequest header = packed;
      header.mutable_q()->mutable_tensor()->clear_data();
      const auto stream = wire::RotaryStream::Create(header, wire::InMessage(), {});
      ASSERT_THAT(stream, IsOk());
      WorkPool pool(2);
      const std::string& bytes = packed.q().tensor().data();
      std::string chunks(bytes.size(), '\0');
      for (size_t begin = 0; begin < bytes.size(); begin += 3 * row) {
        const size_t size = std::min(3 * row, bytes.size() - begin);
        const ContiguousBytes chunk(reinterpret_cast<const std::byte*>(bytes.data()) + begin, size);
        ASSERT_THAT(stream->Rotate(v1::OPERAND_QUERY, static_cast<int64_t>(begin), static_cast<int64_t>(size), chunk,
                                   reinterpret_cast<std::byte*>(chunks.data()) + begin, pool, NeverCancelled),
                    IsOk());
      }
      EXPECT_EQ(chunks, want);
    }
  }
}

TEST(ScaledQueries, TheIndexInTheCacheMayDifferFromThePosition) {
  v1::ApplyRotaryRequest request = Apply(DType::kFP32, v1::QUERY_SCALE_FUNCTION_LLAMA4);
  auto* scale = request.mutable_rotary()->mutable_settings()->mutable_query_scale();
  scale->set_position_source(v1::POSITION_SOURCE_CACHE_INDEX);
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "positions.cache_index"));
  request.mutable_positions()->set_cache_index(-1);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "positions.cache_index"));
  request.mutable_positions()->set_cache_index(8189);  // tokens 2, 3 and 4 are multiplied by 1.0693
  const auto by_index = Call(request);
  ASSERT_THAT(by_index, IsOk());
  v1::ApplyRotaryRequest padded = request;  // positions may be negative: they are not the indexes
  padded.mutable_positions()->set_offset(-2);
  EXPECT_THAT(Call(padded), IsOk());
  request.mutable_rotary()->mutable_settings()->clear_query_scale();
  EXPECT_THAT(Call(request), IsInvalid("NOT_READ", "positions.cache_index"));
  request.mutable_positions()->clear_cache_index();
  const std::vector<double> plain = ValuesOf(Call(request)->q()), got = ValuesOf(by_index->q());
  for (size_t n = 0; n < got.size(); ++n) {
    const double factor = n / (kHeads * kWidth) < 2 ? 1 : 1.0693147;
    EXPECT_NEAR(got[n], plain[n] * factor, 1e-5) << n;
  }
}

// Also where positions are fractions, or float32 rounds past the first step.
TEST(ScaledQueries, ATokensBytesDoNotDependOnTheOthers) {
  struct Case {
    v1::QueryScaleFunction function;
    double parameter;
    v1::PrecisionPreset preset;
    double position, next;
  };
  const auto exact = v1::PRECISION_PRESET_EXACT, f32 = v1::PRECISION_PRESET_F32;
  for (const Case& c : {Case{v1::QUERY_SCALE_FUNCTION_LOGN, 2, exact, 1.5, 2},
                        {v1::QUERY_SCALE_FUNCTION_LOGN, 8192, exact, 8191.5, 8192},
                        {v1::QUERY_SCALE_FUNCTION_LLAMA4, 8191.5, exact, 8190.5, 8191},
                        {v1::QUERY_SCALE_FUNCTION_LLAMA4, 8192.0001, f32, 8191, 8192},
                        {v1::QUERY_SCALE_FUNCTION_LLAMA4, 33554433, f32, 33554431, 33554440}}) {
    v1::ApplyRotaryRequest both = Apply(DType::kFP32, c.function);
    auto* scale = both.mutable_rotary()->mutable_settings()->mutable_query_scale();
    c.function == v1::QUERY_SCALE_FUNCTION_LOGN ? scale->set_seq_length(c.parameter)
                                                : scale->set_floor_scale(c.parameter);
    both.mutable_precision()->set_preset(c.preset);
    both.clear_k();
    const auto send = [&both](const std::vector<double>& positions) {
      v1::ApplyRotaryRequest request = both;
      const auto tokens = static_cast<int64_t>(positions.size());
      *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {tokens}, positions);
      std::vector<double> x = ValuesOf(both.q().tensor());
      x.resize(tokens * kHeads * kWidth);
      *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {tokens, kHeads, kWidth}, x);
      const auto answer = Call(request);
      EXPECT_THAT(answer, IsOk());
      return ValuesOf(answer->q());
    };
    const std::vector<double> alone = send({c.position});
    std::vector<double> first = send({c.position, c.next});
    first.resize(alone.size());
    EXPECT_EQ(first, alone) << c.parameter << " " << c.position;
  }
}

TEST(ScaledQueries, ContradictionsAreNamed) {
  v1::ApplyRotaryRequest request = Apply(DType::kFP32, v1::QUERY_SCALE_FUNCTION_MINISTRAL3);
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->mutable_query_scale()->clear_original_max_position_embeddings();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "rotary.settings.query_scale.original_max_position_embeddings"));
  *settings->mutable_query_scale() = v1::QueryScale();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "rotary.settings.query_scale.function"));
  *settings->mutable_query_scale() = Scale(v1::QUERY_SCALE_FUNCTION_LOGN);
  *request.mutable_positions()->mutable_ids() =
      MakeTensor(DType::kFP64, {kTokens}, std::vector<double>{0, 1, 2, -1, 3});
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "positions.ids[3]"));
  request.mutable_positions()->set_offset(-2);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "positions.offset"));
  request.mutable_positions()->set_offset(0);
  for (const int64_t axis : {0, 0, 1, 1}) settings->mutable_given_frequencies()->add_axis(axis);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "rotary.settings.query_scale"));
}

// A table serves q and k.
TEST(ScaledQueries, TablesHaveNoFactors) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary() = Apply(DType::kFP32, v1::QUERY_SCALE_FUNCTION_BEAM).rotary();
  request.mutable_positions()->set_offset(0);
  request.set_count(4);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  EXPECT_THAT(Call(request), IsInvalid("NOT_READ", "rotary.settings.query_scale"));
}

// Neither has an analysis.
TEST(ScaledQueries, AnalysesHaveNoFactors) {
  v1::AnalyzeRequest request;
  *request.mutable_rotary() = Apply(DType::kFP32, v1::QUERY_SCALE_FUNCTION_BEAM).rotary();
  EXPECT_THAT(Call(request), IsInvalid("NOT_READ", "rotary.settings.query_scale"));
  request.mutable_rotary()->mutable_settings()->clear_given_frequencies();
  request.mutable_rotary()->mutable_settings()->clear_input_pairing();
  EXPECT_THAT(Call(request), IsInvalid("NOT_READ", "rotary.settings.query_scale"));
  request.mutable_rotary()->mutable_model()->set_config_json(R"({"model_type": "ministral3", "head_dim": 64,
      "rope_parameters": {"rope_theta": 1e6, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4096}})");
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  bool noted = false;
  for (const v1::Note& note : answer->info().notes()) {
    EXPECT_NE(note.code(), "QUERY_SCALE");
    noted = noted || note.code() == "NOT_PART_OF_ROTATION";
  }
  EXPECT_TRUE(noted);
}

}  // namespace
}  // namespace posenc::scaled_queries_test
