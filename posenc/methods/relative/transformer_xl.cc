#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "posenc/base/status.h"
#include "posenc/methods/embedding/encoding.h"

namespace posenc {
namespace {

// Range of encodings that the distances need: query - key, clamped, in steps of 1.
struct Encodings {
  Encodings(const TransformerXlSettings& s, const Distances& distances)
      : bound(s.clamp_len ? static_cast<double>(*s.clamp_len)
                          : std::max(std::abs(distances.first), std::abs(distances.last))),
        first(std::clamp(-distances.last, -bound, bound)),
        last(std::clamp(-distances.first, -bound, bound)) {}
  double count() const { return last - first + 1; }
  double bound, first, last;
};

SinusoidalConvention ConventionOf(TransformerXlEncoding encoding) {
  switch (encoding) {
    case TransformerXlEncoding::kHalves: return SinusoidalConvention::kHalves;
    case TransformerXlEncoding::kInterleaved: return SinusoidalConvention::kInterleaved;
    case TransformerXlEncoding::kTensor2Tensor: return SinusoidalConvention::kTensor2Tensor;
  }
  __builtin_unreachable();
}

absl::Status CheckBias(std::string_view field, const std::optional<Matrix<float>>& bias, const RelativeShape& shape) {
  if (!bias) return absl::OkStatus();
  if (bias->shared || bias->rows < shape.heads || bias->columns != shape.head_dim) {
    return InvalidArgument("MISMATCH", fmt::format("{}.shape", field),
                           fmt::format("[{}, {}]", bias->rows, bias->columns),
                           fmt::format("must be [heads, {}] with at least {} heads", shape.head_dim, shape.heads));
  }
  return CheckFinite(field, bias->values);
}

}  // namespace

absl::Status Complete(TransformerXlSettings& s, const RelativeShape& shape, const Limits& limits) {
  if (!s.position.weight) return InvalidArgument("MISSING", "position.weight", "", "must be given: W_kR");
  if (!s.position.bias.empty())
    return InvalidArgument("NOT_READ", "position.bias", "", "must be absent: W_kR has no bias");
  const int64_t d_model = s.position.weight->columns;
  if (d_model < 2 || d_model > limits.max_rotary_dim || d_model % 2 != 0) {
    return InvalidArgument("OUT_OF_RANGE", "position.weight.shape", fmt::format("{} inputs", d_model),
                           fmt::format("must be d_model: even and 2 .. {}", limits.max_rotary_dim));
  }
  POSENC_RETURN_IF_ERROR(Within("position", CheckProjection(s.position, d_model, shape.heads, shape.head_dim)));
  POSENC_RETURN_IF_ERROR(CheckBias("position_bias", s.position_bias, shape));
  if (s.content_bias && !shape.content) {
    return InvalidArgument("NOT_READ", "content_bias", "", "must be absent without content");
  }
  POSENC_RETURN_IF_ERROR(CheckBias("content_bias", s.content_bias, shape));
  if (s.clamp_len && *s.clamp_len < 1) {
    return InvalidArgument("OUT_OF_RANGE", "clamp_len", fmt::format("{}", *s.clamp_len), "must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const TransformerXlSettings& s, const RelativeShape& shape, const Limits& limits) {
  const Encodings encodings(s, shape.distances);
  return CheckTableSize("position.weight", encodings.count(), s.position.weight->rows + s.position.weight->columns,
                        limits);
}

absl::StatusOr<RelativeTables> MakeTables(const TransformerXlSettings& s, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled) {
  const Encodings encodings(s, shape.distances);
  const int64_t d_model = s.position.weight->columns;
  const auto rows = static_cast<int64_t>(encodings.count());
  const Limits checked{.max_rotary_dim = d_model};
  POSENC_ASSIGN_OR_RETURN(
      const std::unique_ptr<const Encoding> sinusoidal,
      Encode(SinusoidalSettings{.convention = ConventionOf(s.encoding), .dim = d_model}, arithmetic, checked));
  std::vector<double> at(rows);
  for (int64_t n = 0; n < rows; ++n) at[n] = encodings.first + static_cast<double>(n);
  Matrix<float> r{std::vector<float>(rows * d_model), rows, d_model, false};
  const auto slab = static_cast<size_t>(std::clamp<int64_t>(65536 / d_model, 1, 256));  // bounds memory
  POSENC_RETURN_IF_ERROR(pool.ParallelFor(rows, slab, cancelled, [&](size_t begin, size_t end) {
    sinusoidal->Fill(at.data() + begin, end - begin, DType::kFP32,
                     reinterpret_cast<std::byte*>(r.values.data() + begin * d_model));
  }));

  RelativeTables tables;
  POSENC_ASSIGN_OR_RETURN(tables.of_query, Project(s.position, r, shape.head_dim, pool, cancelled));
  // The loop counts integers: above 2^53 adding 1 to a double does not change it.
  const auto first = static_cast<int64_t>(shape.distances.first), last = static_cast<int64_t>(shape.distances.last);
  for (int64_t n = first; n <= last; ++n) {
    const double clamped = std::clamp(-static_cast<double>(n), -encodings.bound, encodings.bound);
    tables.row_of_distance.push_back(static_cast<int32_t>(clamped - encodings.first));
  }
  tables.query_bias = s.position_bias;
  tables.content_bias = s.content_bias;
  return tables;
}

}  // namespace posenc
