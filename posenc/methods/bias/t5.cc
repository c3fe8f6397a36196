#include "posenc/methods/bias/bias_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/methods/bias/log_buckets.h"

namespace posenc {
namespace {

constexpr int64_t kMaxBuckets = 8192;  // more buckets would take seconds
constexpr int64_t kMaxDistance = (int64_t{1} << 31) - 1;

// One direction's buckets: n if n < exact, else exact + trunc(ln(n / exact) / ln(max / exact) * shared).
struct Side {
  explicit Side(const T5Settings& s)
      : buckets(*s.num_buckets / (*s.bidirectional ? 2 : 1)),
        exact(buckets / 2),
        shared(buckets - exact),
        max(*s.max_distance) {}
  int64_t buckets, exact, shared, max;
};

}  // namespace

absl::Status Complete(T5Settings& s) {
  if (!s.num_buckets) s.num_buckets = 32;
  if (!s.max_distance) s.max_distance = 128;
  if (!s.bidirectional) {
    return InvalidArgument("MISSING", "bidirectional", "", "must be given: true for an encoder, false for a decoder");
  }
  const int64_t least = *s.bidirectional ? 4 : 2;  // fewer buckets would divide by zero
  if (*s.num_buckets < least || *s.num_buckets > kMaxBuckets) {
    return InvalidArgument("OUT_OF_RANGE", "num_buckets", fmt::format("{}", *s.num_buckets),
                           fmt::format("must be {} .. {}", least, kMaxBuckets));
  }
  const Side side(s);
  if (*s.max_distance <= side.exact || *s.max_distance > kMaxDistance) {
    return InvalidArgument(
        "OUT_OF_RANGE", "max_distance", fmt::format("{}", *s.max_distance),
        fmt::format("must be {} .. 2^31-1: each distance up to {} has its own bucket", side.exact + 1, side.exact));
  }
  return absl::OkStatus();
}

std::vector<int32_t> T5Buckets(Frequencies arithmetic, const T5Settings& s, int64_t first, int64_t count) {
  const Side side(s);
  const int64_t last = first + count - 1;
  const std::vector<int64_t> thresholds =
      Thresholds(arithmetic, {.exact = side.exact, .shared = side.shared, .max = side.max}, side.shared - 1,
                 std::max(std::abs(first), std::abs(last)));
  std::vector<int32_t> buckets;
  buckets.reserve(count);
  for (int64_t distance = first; distance <= last; ++distance) {
    InterruptionPointOfStep(distance);
    const int64_t n = *s.bidirectional ? std::abs(distance) : std::max<int64_t>(-distance, 0);
    const auto passed = std::upper_bound(thresholds.begin(), thresholds.end(), n) - thresholds.begin();
    const int64_t bucket = n < side.exact ? n : side.exact + passed;
    buckets.push_back(static_cast<int32_t>(bucket + (*s.bidirectional && distance > 0 ? side.buckets : 0)));
  }
  return buckets;
}

}  // namespace posenc
