// Rows of cosines and sines times powers: proven entries against MPFR, how many are proven, and every target.
#include "posenc/kernels/sincos_powers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "posenc/exact/real.h"
#include "posenc/kernels/sincos_slow.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"

namespace posenc {
namespace {

constexpr DType kDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};

struct Row {
  DType dtype = DType::kFP32;
  double scale = 1;
  std::vector<double> inv_freq, base;
  double position = 0, exponent = 0;
  std::vector<double> log_base;  // from `base`, by Compute
  std::vector<std::byte> cos, sin;
  std::vector<size_t> unproven;

  void Compute() {
    for (size_t i = log_base.size(); i < base.size(); ++i) log_base.push_back(RoundedLog<double>(base[i]));
    cos.assign(inv_freq.size() * SizeOf(dtype), std::byte{0xAA});
    sin = cos;
    ComputeSinCosPowers({dtype, inv_freq.data(), log_base.data(), inv_freq.size(), FirstScaleOf(scale, false)},
                        position, exponent, cos.data(), sin.data(), unproven);
  }
  bool Proven(size_t i) const { return std::find(unproven.begin(), unproven.end(), i) == unproven.end(); }
  CosSin Got(size_t i) const {
    return {reference::Decode(dtype, cos.data() + i * SizeOf(dtype)),
            reference::Decode(dtype, sin.data() + i * SizeOf(dtype))};
  }
  CosSin Want(size_t i) const {
    return ScaledSinCos(position, inv_freq[i], dtype, [&](mpfr_ptr value) {
      const RealPrecision working(mpfr_get_prec(value) + 96);
      const Real factor = Pow(Real(base[i]), Real(exponent)) * Real(scale);
      return mpfr_mul(value, value, factor.get(), MPFR_RNDN) == 0 && exponent == 0 ? 0 : 1;
    });
  }
};

bool Same(const CosSin& a, const CosSin& b) {
  return std::bit_cast<uint64_t>(a.cos) == std::bit_cast<uint64_t>(b.cos) &&
         std::bit_cast<uint64_t>(a.sin) == std::bit_cast<uint64_t>(b.sin);
}

// Expects proven entries to be right, and the same on every target where it proves them. Returns how many columns the
// best target does not prove.
size_t Check(Row& row) {
  std::vector<CosSin> want;
  for (size_t i = 0; i < row.inv_freq.size(); ++i) want.push_back(row.Want(i));
  OnEveryTarget([&] {
    row.Compute();
    for (size_t i = 0; i < want.size(); ++i) {
      const CosSin got = row.Got(i);
      EXPECT_TRUE(!row.Proven(i) || Same(got, want[i]))
          << std::hexfloat << Name(row.dtype) << " position " << row.position << " frequency " << row.inv_freq[i]
          << " base " << row.base[i] << " exponent " << row.exponent << " scale " << row.scale << ": " << got.cos << " "
          << got.sin << " for " << want[i].cos << " " << want[i].sin;
    }
  });
  return row.unproven.size();
}

// Bases of xPos and others.
Row RandomRow(DType dtype, size_t pairs, std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Row row{.dtype = dtype, .scale = std::exp2(between(-8, 8)) * (random() % 4 == 0 ? -1 : 1)};
  const double theta = std::exp2(between(4, 20));
  for (size_t i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    row.inv_freq.push_back(std::pow(theta, -share));
    row.base.push_back((share + 0.4) / 1.4);
  }
  row.position = std::floor(std::exp2(between(-1, random() % 4 == 0 ? 40 : 14)));
  if (random() % 4 == 0) row.position *= -between(0, 1);
  row.exponent = between(-1, 1) * std::exp2(between(-4, random() % 4 == 0 ? 9 : 3));
  return row;
}

TEST(SinCosPowers, RandomEntriesAreCorrectlyRounded) {
  std::mt19937_64 random(PrintedSeed(20261125));
  for (const DType dtype : kDTypes) {
    size_t pairs = 0, unproven = 0;
    for (size_t n = 0; n < 600 * Times() / OneIn(); ++n) {
      Row row = RandomRow(dtype, 1 + n % 67, random);
      row.exponent = n % 50 == 0 ? 0 : row.exponent;
      unproven += Check(row);
      pairs += row.inv_freq.size();
    }
    EXPECT_LT(unproven, pairs / 500) << Name(dtype);
  }
}

// The scale puts the cosine or sine within 64 units in the last place, as a double, of the middle between two numbers.
TEST(SinCosPowers, EntriesNearTiesAreRightOrLeftToTheCaller) {
  std::mt19937_64 random(PrintedSeed(20261126));
  for (const DType dtype : kDTypes) {
    const int bits = dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
    size_t cases = 0, unproven = 0;
    for (; cases < 4000 * Times() / OneIn(); ++cases) {
      Row row = RandomRow(dtype, 1, random);
      row.base[0] = std::uniform_real_distribution<double>(0.28, 1)(random);
      row.inv_freq[0] = std::uniform_real_distribution<double>(1e-6, 1)(random);
      row.exponent = std::remainder(row.exponent, 8);
      const double middle = std::ldexp(static_cast<double>(2 * (random() >> (65 - bits) | 1ULL << (bits - 1)) + 1), -bits);
      const RealPrecision working(200);
      Real value;
      const Real angle = Real(row.position) * Real(row.inv_freq[0]);
      (random() % 2 == 0 ? mpfr_cos : mpfr_sin)(value.get(), angle.get(), MPFR_RNDN);
      row.scale = NearestDouble(Real(middle) / (value * Pow(Real(row.base[0]), Real(row.exponent))));
      row.scale *= 1 + static_cast<double>(static_cast<int64_t>(random() % 129) - 64) * 0x1p-52;
      unproven += Check(row);
    }
    std::cout << Name(dtype) << ": " << unproven << " of " << cases << " entries near ties are left to the caller\n";
    EXPECT_GT(unproven, cases / 10) << Name(dtype);
    EXPECT_LT(unproven, cases / 2) << Name(dtype);  // the bound is not far too large
  }
}

TEST(SinCosPowers, FewEntriesAreLeftToTheCaller) {
  for (const DType dtype : kDTypes) {
    std::mt19937_64 random(1);
    Row row = RandomRow(dtype, 64, random);
    const size_t rows = 262144 / OneIn();
    size_t unproven = 0;
    for (size_t n = 0; n < rows; ++n) {
      row.position = static_cast<double>(n);
      row.exponent = (row.position - 2048) / 32768;
      row.Compute();
      unproven += row.unproven.size();
    }
    const size_t entries = 2 * rows * row.inv_freq.size();
    std::cout << Name(dtype) << ": " << unproven << " of " << entries << " entries are left to the caller\n";
    EXPECT_LE(unproven, entries >> 20) << Name(dtype);
  }
}

TEST(SinCosPowers, InputsBeyondTheProofAreLeftToTheCaller) {
  std::vector<size_t> all(13);
  std::iota(all.begin(), all.end(), size_t{0});
  for (const DType dtype : kDTypes) {
    Row ordinary{dtype, 1.5, std::vector<double>(13, 0.75), std::vector<double>(13, 0.5), 3, 0.25};
    EXPECT_EQ(Check(ordinary), 0);
    std::vector<Row> rows(9, ordinary);
    rows[0].scale = 0;
    rows[1].scale = 0x1p301;
    rows[2].scale = -0x1p-301;
    rows[3].position = 0x1p901;
    rows[4].position = 0x1p-801;
    rows[5].position = 0x1p50;
    rows[6].exponent = 601;
    rows[7].exponent = -INFINITY;
    rows[8].exponent = NAN;
    OnEveryTarget([&] {
      for (Row& row : rows) {
        row.Compute();
        EXPECT_EQ(row.unproven, all) << row.scale << " " << row.position << " " << row.exponent;
      }
    });
  }
}

// Results of all sizes: zeros with signs, subnormals and infinities, and an angle of zero among others.
TEST(SinCosPowers, ExtremeEntriesAreRight) {
  for (const DType dtype : kDTypes) {
    for (const double scale : {1.0, -1.0, 1e-30, -1e-80, 1e30, -1e80}) {
      for (const double position : {0.0, -0.0, 1.0, -5.0, 1e9}) {
        for (const double exponent : {0.0, 1.0, -40.0, 40.0, -500.0, 500.0}) {
          Row row{dtype, scale, {1, 0, -0.0, 1e-3, 1e-100, 1e300, 0.5, -2, 3, 0}, std::vector<double>(10, 0.5),
                  position, exponent};
          Check(row);
          EXPECT_TRUE(row.Proven(1) || scale != 1 || exponent != 0);
        }
      }
    }
  }
}

// The last vector of columns: nothing beyond the row is written, which AddressSanitizer detects.
TEST(SinCosPowers, OfAnyCount) {
  std::mt19937_64 random(PrintedSeed(3));
  for (const DType dtype : kDTypes) {
    const Row whole = RandomRow(dtype, 40, random);
    for (size_t count = 0; count <= 40; ++count) {
      Row row = whole;
      row.inv_freq.resize(count);
      row.base.resize(count);
      Check(row);
    }
  }
}

}  // namespace
}  // namespace posenc
