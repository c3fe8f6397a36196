#include "posenc/kernels/distance_bias.h"

#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/random_bias.h"
#include "tests/reference/scalar_bias.h"

namespace posenc {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DistanceBiasTest, MatchesTheFormulaOnEveryTarget) {
  const uint64_t seed = PrintedSeed(20240603);
  for (uint64_t repeat = 0; repeat < 3000; ++repeat) {
    SCOPED_TRACE("repeat " + std::to_string(repeat));
    std::mt19937_64 random(seed + repeat);
    RandomBias matrix;
    DistanceBias work = RandomBiasWork(random, matrix);
    const bool in_place = work.scores != nullptr && random() % 2 == 0;
    const size_t misalignment = random() % 4;
    const size_t begin = random() % work.queries;
    const size_t end = begin + random() % (work.queries - begin + 1);
    const auto run = [&](auto compute) {
      Block out(matrix.scores.size(), misalignment);
      std::memset(out.data(), 0xa5, out.size());
      if (in_place) {
        std::memcpy(out.data(), matrix.scores.data(), out.size());
        work.scores = out.data();
      }
      work.out = out.data();
      compute(work, begin, end);
      MakeNansEqual(work.dtype, out.data(), work.queries * work.keys);
      return out;
    };
    const Block expected = run(reference::ScalarBias);
    OnEveryTarget([&] {
      ExpectSameBytes(expected, run([](const DistanceBias& w, size_t b, size_t e) { ComputeDistanceBias(w, b, e); }));
    });
    if (testing::Test::HasFailure()) return;
  }
}

// The row of a single query at position 4 over keys 0 ... 8, without scores unless given.
std::vector<double> OneRow(DType dtype, float slope, std::vector<double> scores = {}) {
  const double query = 4;
  const std::vector<double> keys = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::byte> in(keys.size() * SizeOf(dtype)), out(in.size());
  for (size_t j = 0; j < scores.size(); ++j) reference::Encode(dtype, scores[j], in.data() + j * SizeOf(dtype));
  DistanceBias work{};
  work.dtype = dtype;
  work.queries = 1;
  work.keys = keys.size();
  work.bias = LinearBias{&query, keys.data(), slope, -slope};
  if (!scores.empty()) work.scores = in.data();
  work.out = out.data();
  ComputeDistanceBias(work, 0, 1);
  std::vector<double> row;
  for (size_t j = 0; j < keys.size(); ++j) row.push_back(reference::Decode(dtype, out.data() + j * SizeOf(dtype)));
  return row;
}

TEST(DistanceBiasTest, FallsOffOnBothSides) {
  OnEveryTarget([] {
    for (DType dtype : kBiasDTypes) {
      EXPECT_EQ(OneRow(dtype, 0.5f), (std::vector<double>{-2, -1.5, -1, -0.5, 0, -0.5, -1, -1.5, -2}));
    }
  });
}

TEST(DistanceBiasTest, IsPositiveZeroAtDistanceZero) {
  OnEveryTarget([] {
    for (DType dtype : kBiasDTypes) {
      for (float slope : {0.5f, -0.5f, 0.0f, -0.0f}) {
        EXPECT_FALSE(std::signbit(OneRow(dtype, slope)[4])) << Name(dtype) << " " << slope;
        EXPECT_FALSE(std::signbit(OneRow(dtype, slope, std::vector<double>(9, -0.0))[4])) << Name(dtype);
      }
      for (double bias : OneRow(dtype, 0.0f)) EXPECT_FALSE(std::signbit(bias)) << Name(dtype);
    }
    // The bias -2^-30 is not zero in float32; FP16 rounds it to -0.
    EXPECT_TRUE(std::signbit(OneRow(DType::kFP16, 0x1p-30f)[3]));
  });
}

TEST(DistanceBiasTest, LeavesScoresAloneWithoutABias) {
  OnEveryTarget([] {
    for (DType dtype : kBiasDTypes) {
      DistanceBias work{.dtype = dtype, .rounding = Rounding::kOnce, .queries = 1, .keys = 9};
      Block scores(9 * SizeOf(dtype)), out(scores.size());
      for (int j = 0; j < 9; ++j) reference::Encode(dtype, j == 4 ? 1.5 : -0.0, scores.data() + j * SizeOf(dtype));
      work.scores = scores.data();
      work.out = out.data();
      ComputeDistanceBias(work, 0, 1);
      ExpectSameBytes(scores, out);  // the signs of -0 stay
    }
  });
}

}  // namespace
}  // namespace posenc
