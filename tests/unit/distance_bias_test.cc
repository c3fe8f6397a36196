#include "posenc/kernels/distance_bias.h"

#include "tests/reference/scalar_bias.h"
#include "tests/unit/elements.h"
#include "tests/unit/every_target.h"

namespace posenc {
namespace {

constexpr DType kDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Inputs of one matrix, owned.
struct Matrix {
  std::vector<double> query_positions, key_positions, mask_query_positions, mask_key_positions;
  std::vector<double> query_documents, key_documents;
  std::vector<float> bias;
  std::vector<uint8_t> key_valid;
  Block scores{0};
};

template <class T, size_t N>
T OneOf(std::mt19937_64& random, const T (&choices)[N]) {
  return choices[random() % N];
}

// Random in everything. Most windows reach into the matrix, some lie outside it.
DistanceBias RandomWork(std::mt19937_64& random, Matrix& matrix) {
  DistanceBias work{};
  work.dtype = OneOf(random, kDTypes);
  work.rounding = random() % 2 == 0 ? Rounding::kOnce : Rounding::kEachOperation;
  work.queries = 1 + random() % 6;
  work.keys = random() % 4 == 0 ? 32 * (1 + random() % 6) : 1 + random() % 80;
  work.large = random() % 2 == 0;
  const double scale = OneOf(random, {1.0, 0.25, 1000.0, 1e9});
  const double offset = static_cast<double>(random() % 100) - 20;
  const bool in_order = random() % 2 == 0;
  for (size_t i = 0; i < work.queries; ++i) {
    matrix.query_positions.push_back(scale * (offset + static_cast<double>(i)));
    matrix.mask_query_positions.push_back(offset + static_cast<double>(in_order ? i : random() % 20));
  }
  for (size_t j = 0; j < work.keys; ++j) {
    matrix.key_positions.push_back(scale * static_cast<double>(j));
    matrix.mask_key_positions.push_back(static_cast<double>(in_order ? j : random() % 100));
  }
  const uint64_t density = random() % 4;  // of valid keys; 0: none
  for (size_t j = 0; j < work.keys; ++j) {
    matrix.key_valid.push_back(random() % 4 < density ? OneOf(random, {uint8_t{1}, uint8_t{128}, uint8_t{255}}) : 0);
  }
  matrix.scores = Block(work.queries * work.keys * SizeOf(work.dtype), random() % 4);
  FillWithElements(work.dtype, random, matrix.scores.data(), work.queries * work.keys);

  // Linear, rows of their own, slices of one row, or none.
  const uint64_t source = random() % 4;
  if (source == 0) {
    work.query_positions = matrix.query_positions.data();
    work.key_positions = matrix.key_positions.data();
  } else if (source < 3) {
    const bool slices = source == 2;
    matrix.bias.resize(slices ? work.queries + work.keys - 1 : work.queries * work.keys);
    for (float& x : matrix.bias) x = static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -51) - 2);
    work.bias = matrix.bias.data() + (slices ? work.queries - 1 : 0);
    work.bias_stride = slices ? -1 : static_cast<ptrdiff_t>(work.keys);
  }
  const float slopes[] = {0.5f, -0.5f, 0.00390625f, 0.7071067811865476f, 0.0f, -0.0f, -3.0f, 1e-42f, 3e38f, -1e-30f};
  work.past_slope = OneOf(random, slopes);
  work.future_slope = OneOf(random, slopes);
  work.bias_dtype = OneOf(random, kDTypes);
  if (random() % 4 != 0) {
    work.mask_query_positions = matrix.mask_query_positions.data();
    work.mask_key_positions = matrix.mask_key_positions.data();
    work.mask_keys_ascend = in_order && random() % 2 == 0;
    work.causal = random() % 3 == 0;
    const double windows[] = {kUnlimited, kUnlimited, 0, 0.5, 1, 5, 30, 1e300};
    work.window_left = OneOf(random, windows);
    work.window_right = OneOf(random, windows);
  }
  if (random() % 3 == 0) work.prefix_end = static_cast<double>(random() % 40) - 0.5;
  if (random() % 3 == 0) {
    for (size_t i = 0; i < work.queries; ++i) matrix.query_documents.push_back(static_cast<double>(random() % 3));
    for (size_t j = 0; j < work.keys; ++j) matrix.key_documents.push_back(static_cast<double>(random() % 3));
    work.query_documents = matrix.query_documents.data();
    work.key_documents = matrix.key_documents.data();
  }
  if (random() % 2 == 0) work.key_valid = matrix.key_valid.data();
  work.fill = OneOf(random, {-kInfinity, 0.0f, -10000.0f, std::numeric_limits<float>::lowest(), 1.00001f});
  work.zero_fully_masked_rows = random() % 2 == 0;
  if (random() % 3 != 0) work.scores = matrix.scores.data();
  return work;
}

TEST(DistanceBiasTest, MatchesTheFormulaOnEveryTarget) {
  const uint64_t seed = PrintedSeed(20240603);
  for (uint64_t repeat = 0; repeat < 3000; ++repeat) {
    SCOPED_TRACE("repeat " + std::to_string(repeat));
    std::mt19937_64 random(seed + repeat);
    Matrix matrix;
    DistanceBias work = RandomWork(random, matrix);
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
      ExpectSameBytes(expected, run([](const DistanceBias& w, size_t b, size_t e) { posenc::Run(w, b, e); }));
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
  work.query_positions = &query;
  work.key_positions = keys.data();
  work.past_slope = slope;
  work.future_slope = -slope;
  if (!scores.empty()) work.scores = in.data();
  work.out = out.data();
  Run(work, 0, 1);
  std::vector<double> row;
  for (size_t j = 0; j < keys.size(); ++j) row.push_back(reference::Decode(dtype, out.data() + j * SizeOf(dtype)));
  return row;
}

TEST(DistanceBiasTest, FallsOffOnBothSides) {
  OnEveryTarget([] {
    for (DType dtype : kDTypes) {
      EXPECT_EQ(OneRow(dtype, 0.5f), (std::vector<double>{-2, -1.5, -1, -0.5, 0, -0.5, -1, -1.5, -2}));
    }
  });
}

TEST(DistanceBiasTest, IsPositiveZeroAtDistanceZero) {
  OnEveryTarget([] {
    for (DType dtype : kDTypes) {
      for (float slope : {0.5f, -0.5f, 0.0f, -0.0f}) {
        EXPECT_FALSE(std::signbit(OneRow(dtype, slope)[4])) << Name(dtype) << " " << slope;
        EXPECT_FALSE(std::signbit(OneRow(dtype, slope, std::vector<double>(9, -0.0))[4])) << Name(dtype);
      }
      for (double bias : OneRow(dtype, 0.0f)) EXPECT_FALSE(std::signbit(bias)) << Name(dtype);
    }
    // 2^-30 is no zero in float32; that it is one in FP16 leaves its sign.
    EXPECT_TRUE(std::signbit(OneRow(DType::kFP16, 0x1p-30f)[3]));
  });
}

TEST(DistanceBiasTest, LeavesScoresAloneWithoutABias) {
  OnEveryTarget([] {
    for (DType dtype : kDTypes) {
      DistanceBias work{.dtype = dtype, .rounding = Rounding::kOnce, .queries = 1, .keys = 9};
      Block scores(9 * SizeOf(dtype)), out(scores.size());
      for (int j = 0; j < 9; ++j) reference::Encode(dtype, j == 4 ? 1.5 : -0.0, scores.data() + j * SizeOf(dtype));
      work.scores = scores.data();
      work.out = out.data();
      posenc::Run(work, 0, 1);
      ExpectSameBytes(scores, out);  // the sign of -0 with them
    }
  });
}

}  // namespace
}  // namespace posenc
