#include "posenc/methods/t5.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "posenc/arithmetic.h"
#include "posenc/status.h"

namespace posenc {
namespace {

constexpr int64_t kMaxBuckets = 8192;  // more would take seconds
constexpr int64_t kMaxDistance = (int64_t{1} << 31) - 1;

// One direction's buckets. n < exact: bucket n; else exact + trunc(ln(n / exact) / ln(max / exact) * shared).
struct Side {
  explicit Side(const T5Settings& s)
      : buckets(*s.num_buckets / (*s.bidirectional ? 2 : 1)),
        exact(buckets / 2),
        shared(buckets - exact),
        max(*s.max_distance) {}
  int64_t buckets, exact, shared, max;
};

// Whether distance n's logarithm reaches bucket exact + k, by the model's chain.
template <class A>
class Chain {
  using S = typename A::Scalar;
  using E = typename A::Element;

 public:
  explicit Chain(const Side& side)
      : exact_(Number(side.exact)),
        shared_(Number(side.shared)),
        log_of_all_(Log(S(Number(side.max)) / S(Number(side.exact)))) {}
  bool Reaches(int64_t n, int64_t k) const {
    return Log(E(Number(n)) / exact_) / log_of_all_ * shared_ >= E(Number(k));
  }

 private:
  static double Number(int64_t value) { return static_cast<double>(value); }
  E exact_, shared_, log_of_all_;
};

// The same over the real numbers: ln(n/exact) * shared >= ln(max/exact) * k. What balls leave open is a tie, or nearly
// one, and its powers are compared as integers: n^shared * exact^k >= max^k * exact^shared.
class RealLine {
 public:
  explicit RealLine(const Side& side) : side_(side), log_of_all_(Log(Number(side.max) / Number(side.exact))) {}

  bool Reaches(int64_t n, int64_t k) const {
    const Ball difference = Log(Number(n) / Number(side_.exact)) * Number(side_.shared) - log_of_all_ * Number(k);
    if (const auto decided = difference.NotNegative()) return *decided;
    const int64_t common = std::gcd(side_.shared, k), shared = side_.shared / common, scaled = k / common;
    const int bits = std::bit_width(static_cast<uint64_t>(std::max(n, side_.max)));
    const RealPrecision exact_for_both(2 * bits * (shared + scaled) + 64);
    const auto power = [](int64_t base, int64_t exponent) {
      return Pow(Real(static_cast<double>(base)), Real(static_cast<double>(exponent)));
    };
    return power(n, shared) * power(side_.exact, scaled) >= power(side_.max, scaled) * power(side_.exact, shared);
  }

 private:
  static Ball Number(int64_t value) { return static_cast<double>(value); }
  Side side_;
  Ball log_of_all_;
};

// The least distance of each shared bucket but the first, up to `largest`. Every step of the chain is monotone, so that
// bisection finds it.
template <class Logarithms>
std::vector<int64_t> Thresholds(const Side& side, int64_t largest) {
  const Logarithms logarithms(side);
  std::vector<int64_t> thresholds;
  int64_t low = side.exact;
  for (int64_t k = 1; k < side.shared && low <= largest && logarithms.Reaches(largest, k); ++k) {
    int64_t high = largest;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (logarithms.Reaches(middle, k)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    thresholds.push_back(low);
  }
  return thresholds;
}

std::vector<int64_t> Thresholds(Frequencies arithmetic, const Side& side, int64_t largest) {
  switch (arithmetic) {
    case Frequencies::kExact: return Thresholds<RealLine>(side, largest);
    case Frequencies::kFloat64: return Thresholds<Chain<Float64Arithmetic>>(side, largest);
    case Frequencies::kFloat32: return Thresholds<Chain<Float32Arithmetic>>(side, largest);
  }
  __builtin_unreachable();
}

}  // namespace

absl::Status Complete(T5Settings& s) {
  if (!s.num_buckets) s.num_buckets = 32;
  if (!s.max_distance) s.max_distance = 128;
  if (!s.bidirectional) {
    return InvalidArgument("MISSING", "bidirectional", "", "has no default: true for an encoder, false for a decoder");
  }
  const int64_t least = *s.bidirectional ? 4 : 2;  // below it the formula divides by zero
  if (*s.num_buckets < least || *s.num_buckets > kMaxBuckets) {
    return InvalidArgument("OUT_OF_RANGE", "num_buckets", fmt::format("{}", *s.num_buckets),
                           fmt::format("must be {} .. {}", least, kMaxBuckets));
  }
  const Side side(s);
  if (*s.max_distance <= side.exact || *s.max_distance > kMaxDistance) {
    return InvalidArgument(
        "OUT_OF_RANGE", "max_distance", fmt::format("{}", *s.max_distance),
        fmt::format("must be {} .. 2^31-1: up to {} each distance has its own bucket", side.exact + 1, side.exact));
  }
  return absl::OkStatus();
}

std::vector<int32_t> T5Buckets(Frequencies arithmetic, const T5Settings& s, int64_t first, int64_t count) {
  const Side side(s);
  const int64_t last = first + count - 1;
  const std::vector<int64_t> thresholds = Thresholds(arithmetic, side, std::max(std::abs(first), std::abs(last)));
  std::vector<int32_t> buckets;
  buckets.reserve(count);
  for (int64_t distance = first; distance <= last; ++distance) {
    const int64_t n = *s.bidirectional ? std::abs(distance) : std::max<int64_t>(-distance, 0);
    const auto passed = std::upper_bound(thresholds.begin(), thresholds.end(), n) - thresholds.begin();
    const int64_t bucket = n < side.exact ? n : side.exact + passed;
    buckets.push_back(static_cast<int32_t>(bucket + (*s.bidirectional && distance > 0 ? side.buckets : 0)));
  }
  return buckets;
}

}  // namespace posenc
