// Properties of every rotation, whatever the numbers: mathematical ones, and that requests of equal meaning give equal
// bytes.
#include <gtest/gtest.h>

#include <random>

#include "posenc/kernels/target.h"
#include "tests/service/call.h"

namespace posenc::properties_test {
namespace {

constexpr uint32_t kSeed = 20170612;

std::vector<double> Random(size_t count, uint32_t seed = kSeed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (size_t n = 0; n < count; ++n) values.push_back(normal(random));
  return values;
}

// A request for x [B, S, H, D] under LAYOUT_BSHD, with explicit settings.
v1::ApplyRotaryRequest Request(DType dtype, std::vector<int64_t> shape, const std::vector<double>& x,
                               const std::string& rope_type = "default") {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  auto* p = settings->mutable_rope_parameters();
  p->set_rope_type(rope_type);
  settings->set_rotary_dim(shape.back());
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  if (rope_type == "yarn") {
    p->set_factor(40);
    p->set_original_max_position_embeddings(4096);
  }
  if (rope_type == "dynamic") {
    p->set_factor(2);
    settings->set_max_position_embeddings(4);
  }
  request.set_layout(shape.size() == 3 ? v1::LAYOUT_THD : v1::LAYOUT_BSHD);
  request.mutable_positions()->set_offset(100);
  *request.mutable_q()->mutable_tensor() = MakeTensor(dtype, shape, x);
  return request;
}

std::string Rotated(const v1::ApplyRotaryRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? response->q().data() : "";
}

std::vector<double> RotatedValues(const v1::ApplyRotaryRequest& request) {
  return Unpack(TypeOf(request.q().tensor()), Rotated(request));
}

double Dot(const double* a, const double* b, size_t count) {
  double sum = 0;
  for (size_t n = 0; n < count; ++n) sum += a[n] * b[n];
  return sum;
}

TEST(Rotation, PreservesNorms) {
  const std::vector<double> x = Unpack(DType::kFP32, Pack(DType::kFP32, Random(2 * 5 * 3 * 64)));
  const std::vector<double> y = RotatedValues(Request(DType::kFP32, {2, 5, 3, 64}, x));
  for (size_t row = 0; row < x.size(); row += 64) {
    EXPECT_NEAR(Dot(&y[row], &y[row], 64) / Dot(&x[row], &x[row], 64), 1, 1e-6);
  }
}

// <R_m q, R_n k> = <R_(m-n) q, k>.
TEST(Rotation, ScoreDependsOnTheDistanceOnly) {
  const std::vector<double> q = Random(64, 1), k = Random(64, 2);
  const auto rotate = [](const std::vector<double>& x, int64_t position) {
    v1::ApplyRotaryRequest request = Request(DType::kFP32, {1, 1, 1, 64}, x);
    request.mutable_positions()->set_offset(position);
    return RotatedValues(request);
  };
  for (int64_t distance : {0, 1, 17, 1000}) {
    const double expected = Dot(rotate(q, distance).data(), k.data(), 64);
    for (int64_t n : {-500, 0, 3, 4096, 1000003}) {
      EXPECT_NEAR(Dot(rotate(q, n + distance).data(), rotate(k, n).data(), 64), expected, 1e-5);
    }
  }
}

TEST(Rotation, InverseUndoesForward) {
  const std::vector<double> x = Random(2 * 5 * 3 * 64);
  for (const char* rope_type : {"default", "yarn"}) {
    v1::ApplyRotaryRequest request = Request(DType::kFP32, {2, 5, 3, 64}, x, rope_type);
    request.mutable_rotary()->mutable_settings()->set_output_pairing(v1::PAIRING_HALF_SPLIT);
    const std::vector<double> y = RotatedValues(request);
    v1::ApplyRotaryRequest back = Request(DType::kFP32, {2, 5, 3, 64}, y, rope_type);
    back.set_direction(v1::DIRECTION_INVERSE);
    const std::vector<double> z = RotatedValues(back);
    for (size_t n = 0; n < x.size(); ++n) EXPECT_NEAR(z[n], x[n], 2e-6);
  }
}

// <a R x, y> = <x, a R^T y>, with a != 1.
TEST(Rotation, TransposeIsTheAdjoint) {
  const std::vector<double> x = Random(3 * 64, 1), y = Random(3 * 64, 2);
  v1::ApplyRotaryRequest forward = Request(DType::kFP32, {1, 3, 1, 64}, x, "yarn");
  v1::ApplyRotaryRequest transpose = Request(DType::kFP32, {1, 3, 1, 64}, y, "yarn");
  transpose.set_direction(v1::DIRECTION_TRANSPOSE);
  const double left = Dot(RotatedValues(forward).data(), y.data(), y.size());
  EXPECT_NEAR(left, Dot(x.data(), RotatedValues(transpose).data(), x.size()), 1e-5 * std::abs(left) + 1e-5);
}

TEST(EqualMeanings, OneCallOrTwo) {
  v1::ApplyRotaryRequest both = Request(DType::kBF16, {2, 5, 3, 64}, Random(2 * 5 * 3 * 64, 1));
  *both.mutable_k()->mutable_tensor() = MakeTensor(DType::kFP16, {2, 5, 1, 80}, Random(2 * 5 * 80, 2));
  both.mutable_k()->set_rotary_offset(16);
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
    both.mutable_precision()->set_preset(preset);
    const auto response = Call(both);
    ASSERT_THAT(response, IsOk());
    v1::ApplyRotaryRequest one = both;
    one.clear_k();
    EXPECT_EQ(Rotated(one), response->q().data());
    *one.mutable_q() = both.k();
    EXPECT_EQ(Rotated(one), response->k().data());
  }
}

TEST(EqualMeanings, Layouts) {
  constexpr int64_t kB = 2, kS = 7, kH = 3, kD = 10;
  const std::vector<double> bshd = Random(kB * kS * kH * kD);
  std::vector<double> bhsd(bshd.size());
  const auto at_bshd = [](int64_t b, int64_t s, int64_t h, int64_t d) { return ((b * kS + s) * kH + h) * kD + d; };
  const auto at_bhsd = [](int64_t b, int64_t s, int64_t h, int64_t d) { return ((b * kH + h) * kS + s) * kD + d; };
  const auto for_each = [](const auto& body) {
    for (int64_t b = 0; b < kB; ++b)
      for (int64_t s = 0; s < kS; ++s)
        for (int64_t h = 0; h < kH; ++h)
          for (int64_t d = 0; d < kD; ++d) body(b, s, h, d);
  };
  for_each([&](auto... i) { bhsd[at_bhsd(i...)] = bshd[at_bshd(i...)]; });

  v1::ApplyRotaryRequest first = Request(DType::kFP16, {kB, kS, kH, kD}, bshd);
  const std::vector<double> expected = RotatedValues(first);
  v1::ApplyRotaryRequest transposed = Request(DType::kFP16, {kB, kH, kS, kD}, bhsd);
  transposed.set_layout(v1::LAYOUT_BHSD);
  const std::vector<double> other = RotatedValues(transposed);
  for_each([&](auto... i) { ASSERT_EQ(other[at_bhsd(i...)], expected[at_bshd(i...)]); });

  // In a packed tensor each sequence starts at the offset again.
  v1::ApplyRotaryRequest packed = Request(DType::kFP16, {kB * kS, kH, kD}, bshd);
  *packed.mutable_positions()->mutable_cu_seqlens() =
      MakeTensor(DType::kINT32, {3}, std::vector<int32_t>{0, kS, kB * kS});
  EXPECT_EQ(RotatedValues(packed), expected);
}

TEST(EqualMeanings, PositionSources) {
  constexpr int64_t kB = 2, kS = 9;
  const std::vector<double> x = Random(kB * kS * 2 * 16);
  for (const std::string rope_type : {"default", "dynamic"}) {  // dynamic derives its length from the positions
    SCOPED_TRACE(rope_type);
    v1::ApplyRotaryRequest request = Request(DType::kFP32, {kB, kS, 2, 16}, x, rope_type);
    if (rope_type == "dynamic") {
      request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_PER_SEQUENCE);
    }
    const std::string expected = Rotated(request);
    v1::Positions& positions = *request.mutable_positions();
    std::vector<int64_t> ids;
    for (int64_t s = 0; s < kS; ++s) ids.push_back(100 + s);

    positions.mutable_offsets()->add_offset(100);
    positions.mutable_offsets()->add_offset(100);
    EXPECT_EQ(Rotated(request), expected) << "offsets";
    *positions.mutable_ids() = MakeTensor(DType::kINT64, {kS}, ids);
    EXPECT_EQ(Rotated(request), expected) << "ids [S]";
    *positions.mutable_ids() = MakeTensor(DType::kFP32, {kS}, std::vector<double>(ids.begin(), ids.end()));
    EXPECT_EQ(Rotated(request), expected) << "FP32 ids";
    std::vector<int32_t> twice(ids.begin(), ids.end());
    twice.insert(twice.end(), ids.begin(), ids.end());
    *positions.mutable_ids() = MakeTensor(DType::kINT32, {kB, kS}, twice);
    EXPECT_EQ(Rotated(request), expected) << "ids [B, S]";
    positions.mutable_segments();
    for (const auto& [count, start] : {std::pair{4, 100}, {0, 7}, {5, 104}}) {
      v1::PositionLine* line = positions.mutable_segments()->add_segment()->mutable_line();
      line->set_count(count);
      line->set_start(start);
    }
    EXPECT_EQ(Rotated(request), expected) << "segments";
  }
}

// One token of the whole batch exceeds a slab. One offset for the batch equals one offset per sequence.
TEST(EqualMeanings, BatchesOfDecodeSteps) {
  constexpr int64_t kB = 301, kS = 2, kH = 16, kD = 128;
  const std::vector<double> some = Random(kD * kH);
  std::vector<double> x(kB * kS * kH * kD);
  for (size_t n = 0; n < x.size(); ++n) x[n] = some[n % some.size()] + static_cast<double>(n / some.size() % 7);
  for (const v1::Layout layout : {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD}) {
    const bool heads_first = layout == v1::LAYOUT_BHSD;
    v1::ApplyRotaryRequest request = Request(DType::kBF16, {kB, heads_first ? kH : kS, heads_first ? kS : kH, kD}, x);
    request.set_layout(layout);
    *request.mutable_k() = request.q();
    const std::string expected = Rotated(request);
    request.mutable_positions()->mutable_offsets();
    for (int64_t b = 0; b < kB; ++b) request.mutable_positions()->mutable_offsets()->add_offset(100);
    EXPECT_TRUE(Rotated(request) == expected);
  }
}

// Dynamic scaling by each sequence's own length equals a call for each sequence.
TEST(EqualMeanings, PerSequenceScaling) {
  const std::vector<double> x = Random(10 * 2 * 16);
  v1::ApplyRotaryRequest packed = Request(DType::kFP32, {10, 2, 16}, x, "dynamic");
  packed.mutable_positions()->set_offset(0);
  *packed.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {4}, std::vector<int32_t>{0, 3, 3, 10});
  packed.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_PER_SEQUENCE);
  const auto response = Call(packed);
  ASSERT_THAT(response, IsOk());
  ASSERT_EQ(response->info().sequences_size(), 3);
  EXPECT_EQ(response->info().sequences(0).branch(), "unscaled");
  EXPECT_EQ(response->info().sequences(2).branch(), "scaled");
  EXPECT_EQ(response->info().sequences(2).seq_len(), 7);

  std::string separate;
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 10}}) {
    v1::ApplyRotaryRequest one =
        Request(DType::kFP32, {end - begin, 2, 16}, {x.begin() + begin * 32, x.begin() + end * 32}, "dynamic");
    one.mutable_positions()->set_offset(0);
    one.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_WHOLE_BATCH);
    separate += Rotated(one);
  }
  EXPECT_EQ(response->q().data(), separate);
  packed.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_WHOLE_BATCH);
  EXPECT_NE(Rotated(packed), separate);
}

TEST(EqualMeanings, TargetsOfThisProcessor) {
  const std::string best = CpuTarget();
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER,
                        v1::PRECISION_PRESET_VLLM, v1::PRECISION_PRESET_FLUX}) {
      v1::ApplyRotaryRequest request = Request(dtype, {2, 37, 3, 70}, Random(2 * 37 * 3 * 70), "yarn");
      request.mutable_precision()->set_preset(preset);
      const std::string expected = Rotated(request);
      for (const std::string& target : SupportedCpuTargets()) {
        ASSERT_THAT(ForceCpuTarget(target), IsOk());
        EXPECT_EQ(Rotated(request), expected) << target << ", " << v1::PrecisionPreset_Name(preset);
      }
      ASSERT_THAT(ForceCpuTarget(best), IsOk());
    }
  }
#ifndef HWY_COMPILE_ONLY_STATIC  // the preset dev
  EXPECT_GE(SupportedCpuTargets().size(), 2u);
#endif
}

}  // namespace
}  // namespace posenc::properties_test
