#include "posenc/methods/bias/log_buckets.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

double Number(int64_t value) { return static_cast<double>(value); }

// Compares x(n) with k by the model's own operations, each rounded.
template <class A>
class Chain {
  using S = typename A::Scalar;
  using E = typename A::Element;

 public:
  explicit Chain(const LogBuckets& b)
      : strict_(b.strict), exact_(Number(b.exact)), shared_(Number(b.shared)), log_of_all_(LogOfAll(b)) {}

  bool Passes(int64_t n, int64_t k) const {
    const E x = Log(E(Number(n)) / exact_) / log_of_all_ * shared_;
    return strict_ ? x > E(Number(k)) : x >= E(Number(k));
  }

 private:
  static E LogOfAll(const LogBuckets& b) {
    const S ratio = S(Number(b.max)) / S(Number(b.exact));
    return b.log_of_tensor ? Log(E(ratio)) : E(Log(ratio));
  }

  bool strict_;
  E exact_, shared_, log_of_all_;
};

// Compares x(n) with k over the real numbers: ln(n/exact) * shared with ln(max/exact) * k. Ball arithmetic decides all
// but ties and near-ties. For those it compares integer powers: n^shared * exact^k with max^k * exact^shared.
class RealLine {
 public:
  explicit RealLine(const LogBuckets& b) : b_(b), log_of_all_(Log(Ball(Number(b.max)) / Ball(Number(b.exact)))) {}

  bool Passes(int64_t n, int64_t k) const {
    const Ball x = Log(Ball(Number(n)) / Ball(Number(b_.exact))) * Ball(Number(b_.shared));
    const Ball at = log_of_all_ * Ball(Number(k));
    if (const auto decided = b_.strict ? (at - x).NotNegative() : (x - at).NotNegative()) {
      return b_.strict ? !*decided : *decided;
    }
    const int64_t common = std::gcd(b_.shared, k), shared = b_.shared / common, scaled = k / common;
    const int bits = std::bit_width(static_cast<uint64_t>(std::max(n, b_.max)));
    const RealPrecision exact_for_both(2 * bits * (shared + scaled) + 64);
    const auto power = [](int64_t base, int64_t exponent) { return Pow(Real(Number(base)), Real(Number(exponent))); };
    const Real left = power(n, shared) * power(b_.exact, scaled),
               right = power(b_.max, scaled) * power(b_.exact, shared);
    return b_.strict ? left > right : left >= right;
  }

 private:
  LogBuckets b_;
  Ball log_of_all_;
};

// Finds each threshold by bisection: every step of the chain is monotone.
template <class Logarithms>
std::vector<int64_t> Bisect(const LogBuckets& buckets, int64_t count, int64_t largest) {
  const Logarithms logarithms(buckets);
  std::vector<int64_t> thresholds;
  int64_t low = buckets.exact;
  for (int64_t k = 1; k <= count && low <= largest && logarithms.Passes(largest, k); ++k) {
    int64_t high = largest;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (logarithms.Passes(middle, k)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    thresholds.push_back(low);
  }
  return thresholds;
}

}  // namespace

std::vector<int64_t> Thresholds(Frequencies arithmetic, const LogBuckets& buckets, int64_t count, int64_t largest) {
  switch (arithmetic) {
    case Frequencies::kExact: return Bisect<RealLine>(buckets, count, largest);
    case Frequencies::kFloat64: return Bisect<Chain<Float64Arithmetic>>(buckets, count, largest);
    case Frequencies::kFloat32: return Bisect<Chain<Float32Arithmetic>>(buckets, count, largest);
  }
  __builtin_unreachable();
}

}  // namespace posenc
