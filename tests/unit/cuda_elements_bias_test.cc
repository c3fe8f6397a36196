// The bias cells of the CUDA kernels, made for the CPU, beside its own kernel.
#include <cmath>

#include "cuda/elements/bias.h"
#include "posenc/kernels/distance_bias.h"
#include "tests/unit/elements.h"

namespace posenc::cuda_elements_bias_test {
namespace {

constexpr uint64_t kSeed = 20250613;
constexpr DType kDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};

// One matrix, owned.
struct Matrix {
  std::vector<double> query_positions, key_positions, query_documents, key_documents;
  std::vector<float> bias;
  std::vector<uint8_t> key_valid;
  Block scores{0};
};

template <class T, size_t N>
T OneOf(std::mt19937_64& random, const T (&choices)[N]) {
  return choices[random() % N];
}

DistanceBias RandomWork(std::mt19937_64& random, Matrix& matrix) {
  DistanceBias work{};
  work.dtype = OneOf(random, kDTypes);
  work.rounding = random() % 2 == 0 ? Rounding::kOnce : Rounding::kEachOperation;
  work.queries = 1 + random() % 5;
  work.keys = 1 + random() % 40;
  const double scale = OneOf(random, {1.0, 0.25, 1e9, 1e300});
  for (size_t i = 0; i < work.queries; ++i) {
    matrix.query_positions.push_back(scale * static_cast<double>(random() % 40));
    matrix.query_documents.push_back(static_cast<double>(random() % 3));
  }
  const uint64_t density = random() % 4;  // of valid keys; 0: none
  for (size_t j = 0; j < work.keys; ++j) {
    matrix.key_positions.push_back(scale * (static_cast<double>(random() % 60) - 10.5));
    matrix.key_documents.push_back(static_cast<double>(random() % 3));
    matrix.key_valid.push_back(random() % 4 < density ? OneOf(random, {uint8_t{1}, uint8_t{128}}) : 0);
  }
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
  const float slopes[] = {0.5f, -0.5f, 0.7071067811865476f, 0.0f, -0.0f, -3.0f, 1e-42f, 3e38f, -1e-30f};
  work.past_slope = OneOf(random, slopes);
  work.future_slope = OneOf(random, slopes);
  work.bias_dtype = OneOf(random, kDTypes);
  if (random() % 4 != 0) {
    work.mask_query_positions = matrix.query_positions.data();
    work.mask_key_positions = matrix.key_positions.data();
    work.causal = random() % 2 == 0;
    const double windows[] = {kUnlimited, kUnlimited, 0, 0.5, 5, 30, 1e300};
    work.window_left = OneOf(random, windows);
    work.window_right = OneOf(random, windows);
    if (random() % 3 == 0) work.prefix_end = static_cast<double>(random() % 40) - 0.5;
  }
  if (random() % 3 == 0) {
    work.query_documents = matrix.query_documents.data();
    work.key_documents = matrix.key_documents.data();
  }
  if (random() % 2 == 0) work.key_valid = matrix.key_valid.data();
  work.fill = OneOf(random, {-HUGE_VALF, 0.0f, -10000.0f, std::numeric_limits<float>::lowest(), 1.00001f});
  work.zero_fully_masked_rows = random() % 2 == 0;
  matrix.scores = Block(work.queries * work.keys * SizeOf(work.dtype));
  FillWithElements(work.dtype, random, matrix.scores.data(), work.queries * work.keys);
  if (random() % 3 != 0) work.scores = matrix.scores.data();
  return work;
}

// One cell after the other; counts those of each kind.
struct Seen {
  size_t visible = 0, hidden = 0, zeroed_rows = 0;
};
template <class Format>
void ComputeCells(Format format, const DistanceBias& work, Seen& seen) {
  using Bits = typename Format::Bits;
  const bool linear = work.key_positions != nullptr;
  const cuda::CellKind kind = {static_cast<posenc_rounding>(work.rounding), work.scores != nullptr,
                               linear || work.bias != nullptr};
  const cuda::Slopes slopes = {work.past_slope, work.future_slope, static_cast<posenc_dtype>(work.bias_dtype)};
  for (size_t i = 0; i < work.queries; ++i) {
    cuda::RowMask row;
    if (work.mask_key_positions != nullptr) {
      cuda::SetBounds({work.window_left, work.window_right, work.causal, work.prefix_end}, work.mask_query_positions[i],
                      row);
    }
    if (work.query_documents != nullptr) row.document = work.query_documents[i];
    bool any_visible = false;
    std::vector<Bits> cells(work.keys);
    for (size_t j = 0; j < work.keys; ++j) {
      cuda::KeyMask key;
      if (work.mask_key_positions != nullptr) key.position = work.mask_key_positions[j];
      if (work.key_documents != nullptr) key.document = work.key_documents[j];
      if (work.key_valid != nullptr) key.valid = work.key_valid[j];
      const bool visible = cuda::Visible(row, key);
      any_visible |= visible;
      ++(visible ? seen.visible : seen.hidden);
      float bias = 0;
      if (linear) {
        bias = cuda::LinearBias(slopes, work.query_positions[i], work.key_positions[j]);
      } else if (work.bias != nullptr) {
        bias = work.bias[static_cast<ptrdiff_t>(i) * work.bias_stride + static_cast<ptrdiff_t>(j)];
      }
      Bits score{};
      if (kind.scored) std::memcpy(&score, work.scores + (i * work.keys + j) * sizeof(Bits), sizeof(Bits));
      cells[j] = visible ? cuda::Cell(format, kind, score, bias) : cuda::Encode(format, work.fill);
    }
    if (!any_visible && work.zero_fully_masked_rows) {
      ++seen.zeroed_rows;
      cells.assign(work.keys, 0);
    }
    std::memcpy(work.out + i * work.keys * sizeof(Bits), cells.data(), work.keys * sizeof(Bits));
  }
}

TEST(CudaElementsBiasTest, MatchesTheKernel) {
  const uint64_t seed = PrintedSeed(kSeed);
  Seen seen;
  for (uint64_t repeat = 0; repeat < 20000; ++repeat) {
    SCOPED_TRACE("repeat " + std::to_string(repeat));
    std::mt19937_64 random(seed + repeat);
    Matrix matrix;
    DistanceBias work = RandomWork(random, matrix);
    Block expected(matrix.scores.size()), actual(matrix.scores.size());
    work.out = expected.data();
    posenc::Run(work, 0, work.queries);
    work.out = actual.data();
    switch (work.dtype) {
      case DType::kFP32: ComputeCells(Float32(), work, seen); break;
      case DType::kFP16: ComputeCells(Float16(), work, seen); break;
      default: ComputeCells(BFloat16(), work, seen);
    }
    MakeNansEqual(work.dtype, expected.data(), work.queries * work.keys);
    MakeNansEqual(work.dtype, actual.data(), work.queries * work.keys);
    ExpectSameBytes(expected, actual);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(seen.visible, 100000u);
  EXPECT_GT(seen.hidden, 100000u);
  EXPECT_GT(seen.zeroed_rows, 1000u);
}

}  // namespace
}  // namespace posenc::cuda_elements_bias_test
