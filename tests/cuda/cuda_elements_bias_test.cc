// The CUDA kernels' bias cells, compiled for the CPU, against the CPU kernel.
#include "cuda/elements/bias.h"
#include "tests/kernels/one_in.h"
#include "tests/kernels/random_bias.h"

namespace posenc::cuda_elements_bias_test {
namespace {

constexpr uint64_t kSeed = 20250613;

// Counts of cells and rows of each kind.
struct Seen {
  size_t visible = 0, hidden = 0, zeroed_rows = 0;
};
// Returns false if Real does not hold all inputs: the cells may be wrong then.
template <class Real, class Format>
bool ComputeCells(Format format, const DistanceBias& work, Seen& seen) {
  using Bits = typename Format::Bits;
  bool holds = true;
  const auto real = [&](double value) {
    const auto narrow = static_cast<Real>(value);
    holds &= narrow == value;
    return narrow;
  };
  const auto* gathered = std::get_if<GatheredBias>(&work.bias);
  const auto* linear = std::get_if<LinearBias>(&work.bias);
  const auto* given = std::get_if<GivenBias>(&work.bias);
  const bool biased = !std::holds_alternative<NoBias>(work.bias);
  for (size_t i = 0; i < work.queries; ++i) {
    cuda::Query<double> exact;
    if (work.mask_key_positions != nullptr) {
      cuda::SetBounds({work.window_left, work.window_right, work.causal, work.prefix_end}, work.mask_query_positions[i],
                      exact);
    }
    if (work.query_documents != nullptr) exact.document = work.query_documents[i];
    const cuda::Query<Real> query = {0, real(exact.lowest), real(exact.highest), real(exact.document)};
    bool any_visible = false;
    std::vector<Bits> cells(work.keys);
    for (size_t j = 0; j < work.keys; ++j) {
      const Real position = work.mask_key_positions != nullptr ? real(work.mask_key_positions[j]) : 0;
      const uint8_t valid = work.key_valid != nullptr ? work.key_valid[j] : 1;
      const bool visible = cuda::Within(query, cuda::MaskPosition(position, valid)) &&
                           (work.key_documents == nullptr || real(work.key_documents[j]) == query.document);
      any_visible |= visible;
      ++(visible ? seen.visible : seen.hidden);
      float value[1] = {};
      if (gathered != nullptr) {
        value[0] = gathered->values[cuda::ValueOf(
            gathered->cls_query && i == 0, gathered->cls_key && j == 0, gathered->value_count, real(gathered->first),
            real(gathered->query_positions[i]), real(gathered->key_positions[j]))];
      } else if (linear != nullptr) {
        value[0] = cuda::LinearBias(linear->past_slope, linear->future_slope, real(linear->query_positions[i]),
                                    real(linear->key_positions[j]));
        cuda::RoundCells(static_cast<posenc_dtype>(linear->bias_dtype), value);
      } else if (given != nullptr) {
        value[0] = given->values[static_cast<ptrdiff_t>(i) * given->stride + static_cast<ptrdiff_t>(j)];
      }
      if (work.scores != nullptr) {
        Bits score[1];
        std::memcpy(score, work.scores + (i * work.keys + j) * sizeof(Bits), sizeof(Bits));
        cuda::AddScores(format, biased, static_cast<posenc_rounding>(work.rounding), score, value);
      }
      cells[j] = cuda::Encode(format, visible ? value[0] : work.fill);
    }
    if (!any_visible && work.zero_fully_masked_rows) {
      ++seen.zeroed_rows;
      cells.assign(work.keys, 0);
    }
    std::memcpy(work.out + i * work.keys * sizeof(Bits), cells.data(), work.keys * sizeof(Bits));
  }
  return holds;
}
template <class Real>
bool ComputeCells(const DistanceBias& work, Seen& seen) {
  switch (work.dtype) {
    case DType::kFP32: return ComputeCells<Real>(Float32(), work, seen);
    case DType::kFP16: return ComputeCells<Real>(Float16(), work, seen);
    default: return ComputeCells<Real>(BFloat16(), work, seen);
  }
}

TEST(CudaElementsBiasTest, MatchesTheKernel) {
  const uint64_t seed = PrintedSeed(kSeed);
  Seen seen, seen_in_float;
  size_t in_float = 0;
  const uint64_t repeats = 20000 / OneIn();
  for (uint64_t repeat = 0; repeat < repeats; ++repeat) {
    SCOPED_TRACE("repeat " + std::to_string(repeat));
    std::mt19937_64 random(seed + repeat);
    RandomBias matrix;
    DistanceBias work = RandomBiasWork(random, matrix);
    Block expected(matrix.scores.size()), actual(matrix.scores.size());
    work.out = expected.data();
    ComputeDistanceBias(work, 0, work.queries);
    MakeNansEqual(work.dtype, expected.data(), work.queries * work.keys);
    work.out = actual.data();
    const auto expect_same = [&] {
      MakeNansEqual(work.dtype, actual.data(), work.queries * work.keys);
      ExpectSameBytes(expected, actual);
    };
    ComputeCells<double>(work, seen);
    expect_same();
    if (ComputeCells<float>(work, seen_in_float)) {
      ++in_float;
      expect_same();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(seen.visible, 5 * repeats);
  EXPECT_GT(seen.hidden, 5 * repeats);
  EXPECT_GT(seen.zeroed_rows, repeats / 20);
  EXPECT_GT(in_float, repeats / 10);
  EXPECT_LT(in_float, repeats - repeats / 10);
}

}  // namespace
}  // namespace posenc::cuda_elements_bias_test
