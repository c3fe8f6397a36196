#include "posenc/rotary/distance_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/base/tensor.h"

namespace posenc {
namespace {

absl::Status CheckDistances(const Positions& distances, int64_t count, const Limits& limits) {
  if (std::holds_alternative<PerSequenceOffsets>(distances.source)) {
    return InvalidArgument("NOT_READ", "distances.offsets", "",
                           "must be absent: a curve has one run of distances, use offset");
  }
  if (distances.cu_seqlens) {
    return InvalidArgument("NOT_READ", "distances.cu_seqlens", "", "must be absent without LAYOUT_THD");
  }
  if (distances.scaling_length_rule != ScalingLengthRule::kUnspecified || !distances.seq_len.empty()) {
    return InvalidArgument("NOT_READ", "distances.scaling_length_rule", "",
                           "must be absent: not read here: use the request's seq_len");
  }
  return CheckCount("count", count, limits);
}

// Returns |real + i * imaginary|. std::hypot would depend on the processor. A power of two keeps the squares of large
// and small numbers in range; it does not change the rounding of others.
double Magnitude(double real, double imaginary) {
  const double larger = std::max(std::fabs(real), std::fabs(imaginary));
  const double scale = larger > 0x1p500 ? 0x1p-600 : larger < 0x1p-400 ? 0x1p600 : 1;
  const double x = real * scale, y = imaginary * scale;
  return std::sqrt(x * x + y * y) / scale;
}

}  // namespace

absl::StatusOr<DistanceCurves> DistanceCurves::Create(RotaryPlan plan, int64_t axes, Positions distances, int64_t count,
                                                      const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckDistances(distances, count, limits));
  // The curves cost as much to compute as a float64 table of cosines and sines, so they have the same limit.
  int64_t bytes;
  if (__builtin_mul_overflow(count, static_cast<int64_t>(plan.inv_freq.size() * 2 * sizeof(double)), &bytes) ||
      bytes > limits.max_output_bytes) {
    return TooLarge("count", fmt::format("{} distances", count),
                    fmt::format("must be at most {1} bytes / 16 / {0} pairs (max_output_bytes)", plan.inv_freq.size(),
                                limits.max_output_bytes));
  }
  auto positions = TokenPositions::Create(std::move(distances), {1, count, false, axes}, limits);
  if (!positions.ok()) return Within("distances", positions.status());
  plan.attention_scaling = 1;
  if (plan.xpos) plan.xpos->centre = 0;
  return DistanceCurves(TableRows::OfPlan(std::move(plan), *std::move(positions)));
}

absl::Status DistanceCurves::Write(std::byte* cosine_sum, std::byte* decay_bound, WorkPool& pool,
                                   const Cancellation& cancelled) const {
  const size_t pairs = rows_.pairs();
  const size_t slab = std::clamp<size_t>(8192 / pairs, 1, 1024);
  return pool.ParallelFor(count(), slab, cancelled, [&](size_t begin, size_t end) {
    std::vector<double> cos((end - begin) * pairs), sin(cos.size());
    rows_.Compute(begin, end - begin, DType::kFP64, Operand::kQuery, cos.data(), sin.data());
    for (size_t n = begin; n < end; ++n) {
      const double *row_cos = &cos[(n - begin) * pairs], *row_sin = &sin[(n - begin) * pairs];
      double real = 0, imaginary = 0, magnitudes = 0;
      for (size_t i = 0; i < pairs; ++i) {
        real += row_cos[i];
        imaginary += row_sin[i];
        magnitudes += Magnitude(real, imaginary);
      }
      const double mean = magnitudes / static_cast<double>(pairs);
      std::memcpy(cosine_sum + n * sizeof(double), &real, sizeof(double));
      std::memcpy(decay_bound + n * sizeof(double), &mean, sizeof(double));
    }
  });
}

}  // namespace posenc
