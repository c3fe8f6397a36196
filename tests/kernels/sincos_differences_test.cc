// Rows of SinCosRows whose angles are differences of two products.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "posenc/kernels/sincos_rows.h"
#include "posenc/kernels/sincos_slow.h"
#include "tests/kernels/every_target.h"
#include "tests/reference/sincos_oracle.h"

namespace posenc::sincos_differences {
namespace {

struct Differences {
  DType dtype = DType::kFP32;
  double scale = 1;
  std::vector<double> positions, inv_freq, from_positions, from_inv_freq;
  std::vector<uint8_t> cos, sin;

  SinCosRows Work() {
    cos.assign(positions.size() * inv_freq.size() * SizeOf(dtype), 0xAA);
    sin = cos;
    return {.frequencies = Frequencies::kExact,
            .dtype = dtype,
            .positions = positions.data(),
            .inv_freq = inv_freq.data(),
            .rows = positions.size(),
            .pairs = inv_freq.size(),
            .scale = scale,
            .cos = cos.data(),
            .sin = sin.data(),
            .from_positions = from_positions.data(),
            .from_inv_freq = from_inv_freq.data()};
  }
};

bool Same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

void ExpectRounded(Differences& differences, int bits = 400) {
  OnEveryTarget([&] {
    const SinCosRows work = differences.Work();
    ComputeSinCosRows(work, 0, work.rows);
    for (size_t n = 0; n < work.rows * work.pairs; ++n) {
      const size_t row = n / work.pairs, pair = n % work.pairs;
      const OracleEntry want = DifferenceOracle(work, row, pair, bits);
      const double cos = Element(work.cos, n, work.dtype), sin = Element(work.sin, n, work.dtype);
      ASSERT_TRUE(Same(cos, want.cos) && Same(sin, want.sin))
          << std::hexfloat << work.positions[row] << " * " << work.inv_freq[pair] << " - " << work.from_positions[row]
          << " * " << work.from_inv_freq[pair] << " times " << work.scale << ": " << cos << " " << sin << " for "
          << want.cos << " " << want.sin;
    }
  });
}

std::vector<double> Theta(double theta, size_t pairs) {
  std::vector<double> inv_freq(pairs);
  for (size_t i = 0; i < pairs; ++i)
    inv_freq[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
  return inv_freq;
}

constexpr DType kTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};

TEST(SinCosDifferences, OfTwoThetasAreRoundedOnce) {
  std::mt19937_64 random(20261130);
  for (const DType dtype : kTypes) {
    Differences differences;
    differences.dtype = dtype;
    differences.scale = dtype == DType::kFP16 ? 1 : 1.0 / 1.1386294361119891;
    differences.inv_freq = Theta(1e6, 67);
    differences.from_inv_freq = Theta(1e4, 67);
    for (int n = 0; n < 60; ++n) {
      differences.positions.push_back(static_cast<double>(random() >> (n % 2 == 0 ? 44 : 24)));
      differences.from_positions.push_back(static_cast<double>(random() >> 46));
    }
    ExpectRounded(differences);
  }
}

// Equally spaced rows, of both positions or of one, that begin, end and change within a block.
TEST(SinCosDifferences, OfEquallySpacedRowsAreRoundedOnce) {
  for (const DType dtype : kTypes) {
    for (const double scale : {1.0, -0.75}) {
      Differences differences;
      differences.dtype = dtype;
      differences.scale = scale;
      differences.inv_freq = Theta(1e6, 67);
      differences.from_inv_freq = Theta(1e4, 67);  // the first frequency is equal
      differences.inv_freq[5] = differences.from_inv_freq[5] = 0;
      differences.inv_freq[6] = 0;
      differences.from_inv_freq[7] = std::nextafter(differences.inv_freq[7], 1);
      const auto rows = [&](int count, double to, double step, double from, double from_step) {
        for (int n = 0; n < count; ++n) {
          differences.positions.push_back(to + n * step);
          differences.from_positions.push_back(from + n * from_step);
        }
      };
      rows(71, 5, 1, 40, 1);       // the angles of equal frequencies do not change
      rows(64, 100000, 1, 0, 1);   // from zero on
      rows(33, -16, 1, -16, 1);    // through zero on both sides
      rows(40, 0x1p40, -1, 9, 2);  // two steps
      rows(40, 12, 0, 12, 0);      // none
      rows(50, 3, 0.5, 9, 0);      // one
      rows(7, 3, 1, 4, 1);         // too few
      rows(32, 1, 1, 2, 1);
      ExpectRounded(differences);
    }
  }
}

// Products that cancel, in whole or nearly.
TEST(SinCosDifferences, ThatCancelAreRoundedOnce) {
  const double tiny = std::numeric_limits<double>::denorm_min(), next = std::nextafter(0.1, 1);
  for (const DType dtype : kTypes) {
    for (const double scale : {1.0, -0.75, 1 + 0x1p-24, 1e-310, 4e38}) {
      Differences differences;
      differences.dtype = dtype;
      differences.scale = scale;
      differences.positions = {3, 0x1p40, 1, 0, -0.0, 0x1.8p52, 1e300, tiny, 5};
      differences.from_positions = {3, 0x1p40, 0.5, 0, 7, 0x1.8p51, -1e300, tiny, 5 + 0x1p-50};
      differences.inv_freq = {0.1, 0.5, 1, 0, 1e-5, next, 1e-300, tiny, 0x1p-500, 1e10};
      differences.from_inv_freq = {next, 1, 2, 0.1, 1e-5, 0.1, 1e-300, 0, 0x1p-499, 2e10};
      ExpectRounded(differences, 4500);
    }
  }
}

// The fast path must decide nearly all ordinary entries: the others take MPFR some microseconds each.
TEST(SinCosDifferences, AreNearlyAlwaysDecidedByTheFastPath) {
  Differences differences;
  differences.inv_freq = Theta(1e6, 64);
  differences.from_inv_freq = Theta(5e5, 64);
  for (int n = 0; n < 4096; ++n) {
    differences.positions.push_back(n + 100000);
    differences.from_positions.push_back(n + 5000);
  }
  // Without a slow path unproven entries keep the value that the fast path has not decided.
  const SinCosRows work = differences.Work();
  RunWithSlowPath(work, 0, work.rows, nullptr);
  const std::vector<uint8_t> cos = differences.cos, sin = differences.sin;
  ComputeSinCosRows(differences.Work(), 0, work.rows);
  size_t differ = 0;
  for (size_t n = 0; n < cos.size(); n += sizeof(float)) {
    differ += !std::equal(cos.begin() + n, cos.begin() + n + sizeof(float), differences.cos.begin() + n);
  }
  EXPECT_LE(differ, 2u);
}

}  // namespace
}  // namespace posenc::sincos_differences
