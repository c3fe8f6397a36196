// Positions of several axes: each pair rotates by its own axis's position, as in a table of that axis alone.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "posenc/rotary/rotary_plan.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::axes_test {
namespace {

using Axes = std::vector<int64_t>;

constexpr int64_t kPairs = 16, kRows = 700;  // more rows than a slab has

v1::GenerateTableRequest Mrope(const Axes& sections, v1::MropeOrder order, const std::string& rope_type = "default") {
  v1::GenerateTableRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  auto* p = settings->mutable_rope_parameters();
  p->set_rope_type(rope_type);
  if (rope_type == "yarn") {
    p->set_factor(4);
    p->set_original_max_position_embeddings(64);
  }
  if (rope_type == "linear_positions") p->set_factor(3);
  p->mutable_mrope_section()->Assign(sections.begin(), sections.end());
  p->set_mrope_order(order);
  settings->set_rotary_dim(2 * kPairs);
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

// Positions that include fractions and negative numbers.
std::vector<double> OnAxis(int64_t axis) {
  std::vector<double> positions;
  for (int64_t row = 0; row < kRows; ++row) {
    positions.push_back(static_cast<double>((row * (7 + axis) + 13 * axis) % 1000) / (axis == 1 ? 8 : 1) -
                        (axis == 2 ? 300 : 0));
  }
  return positions;
}

void SetIds(int64_t axes, v1::GenerateTableRequest* request) {
  std::vector<double> ids;
  for (int64_t axis = 0; axis < axes; ++axis) {
    const std::vector<double> one = OnAxis(axis);
    ids.insert(ids.end(), one.begin(), one.end());
  }
  *request->mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {axes, kRows}, ids);
  request->mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
}

std::string Bytes(const v1::GenerateTableRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? response->cos().data() + response->sin().data() : "";
}

// Each entry must equal the entry of a table in which all axes have the position of its pair's axis.
void ExpectPairsOnAxes(v1::GenerateTableRequest request, const Axes& axis_of_pair) {
  const int64_t axes = *std::max_element(axis_of_pair.begin(), axis_of_pair.end()) + 1;
  SetIds(axes, &request);
  const auto table = Call(request);
  ASSERT_THAT(table, IsOk());
  const size_t size = SizeOf(TypeOf(table->cos()));
  for (int64_t axis = 0; axis < axes; ++axis) {
    *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kRows}, OnAxis(axis));
    request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_NONE);
    const auto alone = Call(request);
    ASSERT_THAT(alone, IsOk());
    for (int64_t n = 0; n < kRows * kPairs; ++n) {
      if (axis_of_pair[n % kPairs] != axis) continue;
      ASSERT_EQ(table->cos().data().substr(n * size, size), alone->cos().data().substr(n * size, size)) << n;
      ASSERT_EQ(table->sin().data().substr(n * size, size), alone->sin().data().substr(n * size, size)) << n;
    }
  }
}

// The slices that transformers' models assign.
Axes InterleavedAxes(const Axes& sections) {
  Axes axes(kPairs, 0);
  for (int64_t axis = 1; axis < 3; ++axis) {
    for (int64_t j = axis; j < 3 * sections[axis]; j += 3) axes[j] = axis;
  }
  return axes;
}

TEST(Mrope, PairsTurnByTheirAxis) {
  const Axes contiguous = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2};
  for (const char* rope_type : {"default", "yarn", "linear_positions"}) {
    for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER, v1::PRECISION_PRESET_FLUX}) {
      for (DType dtype : {DType::kFP32, DType::kBF16, DType::kFP64}) {
        v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS, rope_type);
        request.set_dtype(Wire(dtype));
        request.mutable_precision()->set_preset(preset);
        ExpectPairsOnAxes(request, contiguous);
      }
    }
  }
  ExpectPairsOnAxes(Mrope({6, 5, 5}, v1::MROPE_ORDER_INTERLEAVED), InterleavedAxes({6, 5, 5}));
  ExpectPairsOnAxes(Mrope({10, 4, 2}, v1::MROPE_ORDER_INTERLEAVED), InterleavedAxes({10, 4, 2}));
  ExpectPairsOnAxes(Mrope({6, 6, 4}, v1::MROPE_ORDER_ERNIE), {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 0, 0, 0, 0});
}

TEST(Mrope, ExplainSaysTheAxisOfEachPair) {
  v1::ExplainRequest request;
  *request.mutable_rotary() = Mrope({6, 5, 5}, v1::MROPE_ORDER_INTERLEAVED).rotary().settings();
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const auto& axis = response->layers(0).info().plan().frequencies(0).axis();
  EXPECT_EQ(Axes(axis.begin(), axis.end()), InterleavedAxes({6, 5, 5}));
}

TEST(Positions, EqualOnAllAxesAreOfOneAxis) {
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  request.mutable_positions()->set_offset(5);
  request.set_count(40);
  const std::string expected = Bytes(request);
  v1::GenerateTableRequest single = request;
  single.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->clear_mrope_section();
  single.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->clear_mrope_order();
  EXPECT_EQ(Bytes(single), expected);
  std::vector<double> ids;
  for (int n = 0; n < 3 * 40; ++n) ids.push_back(5 + n % 40);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {3, 40}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  EXPECT_EQ(Bytes(request), expected);
  request.mutable_positions()->clear_axis_dimension();
  auto* line = request.mutable_positions()->mutable_segments()->add_segment()->mutable_line();
  line->set_count(40);
  line->set_start(5);
  EXPECT_EQ(Bytes(request), expected);
}

TEST(Positions, AxesFirstOrLast) {
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  SetIds(3, &request);
  const std::string expected = Bytes(request);
  std::vector<double> ids;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t axis = 0; axis < 3; ++axis) ids.push_back(OnAxis(axis)[row]);
  }
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kRows, 3}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  EXPECT_EQ(Bytes(request), expected);
}

struct Run {
  std::vector<int64_t> size;  // empty: a line of 9 from `start`
  std::vector<double> start, step;
};

// Sets the same positions as segments and as ids [n_axes, tokens].
void SetBoth(const std::vector<Run>& runs, v1::Positions* segments, std::vector<std::vector<double>>* ids) {
  ids->resize(3);
  for (const Run& run : runs) {
    auto* segment = segments->mutable_segments()->add_segment();
    if (run.size.empty()) {
      segment->mutable_line()->set_count(9);
      segment->mutable_line()->set_start(run.start[0]);
      for (int n = 0; n < 9; ++n) {
        for (auto& axis : *ids) axis.push_back(run.start[0] + n);
      }
      continue;
    }
    auto* grid = segment->mutable_grid();
    grid->mutable_size()->Assign(run.size.begin(), run.size.end());
    grid->mutable_start()->Assign(run.start.begin(), run.start.end());
    grid->mutable_step()->Assign(run.step.begin(), run.step.end());
    const auto at = [&run](size_t axis, int64_t n) {
      return (run.start.empty() ? 0 : run.start[axis]) +
             static_cast<double>(n) * (run.step.empty() ? 1 : run.step[axis]);
    };
    for (int64_t t = 0; t < run.size[0]; ++t) {
      for (int64_t h = 0; h < run.size[1]; ++h) {
        for (int64_t w = 0; w < run.size[2]; ++w) {
          (*ids)[0].push_back(at(0, t));
          (*ids)[1].push_back(at(1, h));
          (*ids)[2].push_back(at(2, w));
        }
      }
    }
  }
}

const std::vector<Run> kRuns = {
    {{}, {0}, {}}, {{3, 7, 5}, {9, 9, 9}, {}}, {{}, {16}, {}}, {{2, 0, 4}, {}, {}}, {{2, 40, 6}, {}, {0.25, -1.5, 3}}};

TEST(Positions, GridsAreTheIdsOfTheirPoints) {
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  std::vector<std::vector<double>> axes;
  SetBoth(kRuns, request.mutable_positions(), &axes);
  const std::string expected = Bytes(request);
  std::vector<double> ids;
  for (const auto& axis : axes) ids.insert(ids.end(), axis.begin(), axis.end());
  *request.mutable_positions()->mutable_ids() =
      MakeTensor(DType::kFP64, {3, static_cast<int64_t>(axes[0].size())}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  EXPECT_EQ(Bytes(request), expected);
}

// Packed sequences may begin in the middle of a grid; their scaling lengths equal those of the ids.
TEST(Positions, PackedGridsAndScalingLengths) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS).rotary();
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("dynamic");
  settings->mutable_rope_parameters()->set_factor(2);
  settings->set_max_position_embeddings(4);
  std::vector<std::vector<double>> axes;
  SetBoth(kRuns, request.mutable_positions(), &axes);
  const auto tokens = static_cast<int64_t>(axes[0].size());
  std::vector<int64_t> bounds = {0, 5, 12, 16, 17, 40, 100, 130, 300, 440, 600, tokens};
  *request.mutable_positions()->mutable_cu_seqlens() =
      MakeTensor(DType::kINT64, {static_cast<int64_t>(bounds.size())}, bounds);
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_PER_SEQUENCE);
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> x;
  for (int64_t n = 0; n < tokens * 2 * kPairs; ++n) x.push_back(static_cast<double>(n % 23) - 11);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {tokens, 1, 2 * kPairs}, x);
  const auto by_grid = Call(request);
  ASSERT_THAT(by_grid, IsOk());

  std::vector<double> ids;
  for (int64_t token = 0; token < tokens; ++token) {
    for (const auto& axis : axes) ids.push_back(axis[token]);
  }
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {tokens, 3}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  const auto by_ids = Call(request);
  ASSERT_THAT(by_ids, IsOk());
  EXPECT_EQ(by_grid->q().data(), by_ids->q().data());
  ASSERT_EQ(by_grid->info().sequences_size(), static_cast<int>(bounds.size()) - 1);
  for (int n = 0; n < by_grid->info().sequences_size(); ++n) {
    EXPECT_EQ(by_grid->info().sequences(n).seq_len(), by_ids->info().sequences(n).seq_len()) << n;
    double largest = 0;
    for (const auto& axis : axes) {
      for (int64_t token = bounds[n]; token < bounds[n + 1]; ++token) largest = std::max(largest, axis[token]);
    }
    EXPECT_EQ(by_ids->info().sequences(n).seq_len(), static_cast<int64_t>(largest) + 1) << n;
  }
}

// Ids [n_axes, B, S]: each batch row equals a call of its own.
TEST(Positions, AxesOfABatch) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS).rotary();
  request.set_layout(v1::LAYOUT_BSHD);
  const std::vector<double> x(2 * 3 * 2 * kPairs, 1.0);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {2, 3, 1, 2 * kPairs}, x);
  std::vector<double> ids;
  for (int n = 0; n < 3 * 2 * 3; ++n) ids.push_back(n * n % 29);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {3, 2, 3}, ids);
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  const auto both = Call(request);
  ASSERT_THAT(both, IsOk());
  std::string separate;
  for (int b = 0; b < 2; ++b) {
    v1::ApplyRotaryRequest one = request;
    *one.mutable_q()->mutable_tensor() =
        MakeTensor(DType::kFP32, {1, 3, 1, 2 * kPairs}, {x.begin(), x.begin() + 6 * kPairs});
    std::vector<double> own;
    for (int axis = 0; axis < 3; ++axis) own.insert(own.end(), &ids[axis * 6 + b * 3], &ids[axis * 6 + b * 3] + 3);
    *one.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {3, 3}, own);
    const auto response = Call(one);
    ASSERT_THAT(response, IsOk());
    separate += response->q().data();
  }
  EXPECT_EQ(both->q().data(), separate);
}

std::vector<double> AxialPlan(const AxialRope& axial, Frequencies arithmetic) {
  const auto rotary = Rotary::Create({.frequencies = axial, .input_pairing = Pairing::kHalfSplit}, arithmetic, {});
  EXPECT_THAT(rotary, IsOk());
  return (*rotary->Plan(0))->inv_freq;
}
std::vector<double> DefaultPlan(int64_t width, double theta, Frequencies arithmetic) {
  const auto rotary = Rotary::Create({.frequencies = RopeParameters{.rope_type = "default", .rope_theta = theta},
                                      .rotary_dim = width,
                                      .input_pairing = Pairing::kHalfSplit},
                                     arithmetic, {});
  return (*rotary->Plan(0))->inv_freq;
}

constexpr Frequencies kArithmetics[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};

// FLUX has one embedding per axis, one after the other.
TEST(Axial, IsOneEmbeddingAnAxis) {
  for (Frequencies arithmetic : kArithmetics) {
    std::vector<double> expected = DefaultPlan(16, 10000, arithmetic);
    for (double theta : {10000.0, 256.0}) {
      const std::vector<double> next = DefaultPlan(56, theta, arithmetic);
      expected.insert(expected.end(), next.begin(), next.end());
    }
    EXPECT_EQ(AxialPlan({{{16}, {56}, {56, 256}}}, arithmetic), expected);
  }
}

// Pixtral: h has every second frequency of the whole width, w has the others.
TEST(Axial, AStartOfAHalfIsEverySecondFrequency) {
  for (Frequencies arithmetic : kArithmetics) {
    const std::vector<double> whole = DefaultPlan(64, 10000, arithmetic);
    std::vector<double> expected;
    for (size_t start : {0, 1}) {
      for (size_t n = start; n < whole.size(); n += 2) expected.push_back(whole[n]);
    }
    EXPECT_EQ(AxialPlan({{{32}, {32, {}, 0.5}}}, arithmetic), expected);
  }
}

TEST(Axial, PairsTurnByTheirAxis) {
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  auto* axial = request.mutable_rotary()->mutable_settings()->mutable_axial();
  for (int64_t dim : {8, 12, 12}) axial->add_axes()->set_dim(dim);
  ExpectPairsOnAxes(request, {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2});
}

// Kimi K2.5's vision part interleaves the frequencies of its axes.
TEST(Axial, AxesTakeTurns) {
  const std::vector<AxialAxis> axes = {{8}, {8, 100}};
  for (Frequencies arithmetic : kArithmetics) {
    const std::vector<double> in_turn = AxialPlan({axes, true}, arithmetic), after = AxialPlan({axes}, arithmetic);
    ASSERT_EQ(in_turn.size(), 8);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(in_turn[2 * i], after[i]);
      EXPECT_EQ(in_turn[2 * i + 1], after[4 + i]);
    }
  }
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  auto* axial = request.mutable_rotary()->mutable_settings()->mutable_axial();
  for (int axis = 0; axis < 2; ++axis) axial->add_axes()->set_dim(16);
  axial->set_alternating(true);
  ExpectPairsOnAxes(request, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
}

// LTX's axes alternate, which no built-in formula describes.
TEST(GivenFrequencies, PairsTurnByTheirAxis) {
  v1::GenerateTableRequest request = Mrope({4, 6, 6}, v1::MROPE_ORDER_CONTIGUOUS);
  auto* given = request.mutable_rotary()->mutable_settings()->mutable_given_frequencies();
  Axes axes;
  for (int64_t i = 0; i < kPairs; ++i) {
    given->add_inv_freq(1.0 / static_cast<double>(i + 1));
    axes.push_back(i % 3);
    given->add_axis(i % 3);
  }
  ExpectPairsOnAxes(request, axes);
}

// Tables that transformers' own modules compute (tests/golden/several_axes.py). Their frequencies may differ from ours
// in the last place, which positions up to 60 turn into 4e-6; a pair on a wrong axis is off by far more.
TEST(Golden, TablesOfTransformers) {
  const golden::json file = golden::Read("recorded/several_axes.json");
  for (const golden::json& record : file["records"]) {
    SCOPED_TRACE(record["name"].dump());
    v1::GenerateTableRequest request;
    auto* settings = request.mutable_rotary()->mutable_settings();
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(record["settings"].dump(), settings).ok());
    settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
    const auto axes = static_cast<int64_t>(record["positions"].size());
    const std::vector<double> positions = golden::Numbers(record["positions"]);
    *request.mutable_positions()->mutable_ids() =
        MakeTensor(DType::kFP64, {axes, static_cast<int64_t>(positions.size()) / axes}, positions);
    request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
    request.set_dtype(v1::DATA_TYPE_FP32);
    v1::TableForm form;
    ASSERT_TRUE(v1::TableForm_Parse(record["form"].get<std::string>(), &form));
    request.set_form(form);
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
    const auto table = Call(request);
    ASSERT_THAT(table, IsOk());
    for (const auto& [name, tensor] : {std::pair{"cos", table->cos()}, {"sin", table->sin()}}) {
      const std::vector<double> ours = ValuesOf(tensor), recorded = golden::Numbers(record[name]);
      ASSERT_EQ(ours.size(), recorded.size());
      for (size_t n = 0; n < ours.size(); ++n) ASSERT_NEAR(ours[n], recorded[n], 4e-6) << name << "[" << n << "]";
    }
  }
}

}  // namespace
}  // namespace posenc::axes_test
