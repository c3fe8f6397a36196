// The CUDA kernels' bias cells, compiled for the CPU, against the CPU kernel.
#include "cuda/elements/bias.h"
#include "tests/kernels/random_bias.h"

namespace posenc::cuda_elements_bias_test {
namespace {

constexpr uint64_t kSeed = 20250613;

// Counts of cells and rows of each kind.
struct Seen {
  size_t visible = 0, hidden = 0, zeroed_rows = 0;
};
template <class Format>
void ComputeCells(Format format, const DistanceBias& work, Seen& seen) {
  using Bits = typename Format::Bits;
  const auto* gathered = std::get_if<GatheredBias>(&work.bias);
  const auto* linear = std::get_if<LinearBias>(&work.bias);
  const auto* given = std::get_if<GivenBias>(&work.bias);
  const cuda::CellKind kind = {static_cast<posenc_rounding>(work.rounding), work.scores != nullptr,
                               !std::holds_alternative<NoBias>(work.bias)};
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
      if (gathered != nullptr) {
        bias = gathered->values[cuda::ValueOf(gathered->cls_query && i == 0, gathered->cls_key && j == 0,
                                              gathered->value_count, gathered->first, gathered->query_positions[i],
                                              gathered->key_positions[j])];
      } else if (linear != nullptr) {
        const cuda::Slopes slopes = {linear->past_slope, linear->future_slope,
                                     static_cast<posenc_dtype>(linear->bias_dtype)};
        bias = cuda::LinearBias(slopes, linear->query_positions[i], linear->key_positions[j]);
      } else if (given != nullptr) {
        bias = given->values[static_cast<ptrdiff_t>(i) * given->stride + static_cast<ptrdiff_t>(j)];
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
    RandomBias matrix;
    DistanceBias work = RandomBiasWork(random, matrix);
    Block expected(matrix.scores.size()), actual(matrix.scores.size());
    work.out = expected.data();
    ComputeDistanceBias(work, 0, work.queries);
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
