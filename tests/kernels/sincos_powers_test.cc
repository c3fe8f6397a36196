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

struct Table {
  DType dtype = DType::kFP32;
  double scale = 1;
  std::vector<double> inv_freq, base;
  std::vector<double> positions;
  double centre = 0, scale_base = 1;
  std::vector<double> log_base;  // from `base`, by Compute
  std::vector<std::byte> cos, sin;
  std::vector<bool> unproven;

  size_t Entries() const { return positions.size() * inv_freq.size(); }
  // Returns how many entries the kernel leaves to the caller, which answers with 0.
  size_t Compute() {
    for (size_t i = log_base.size(); i < base.size(); ++i) log_base.push_back(RoundedLog<double>(base[i]));
    cos.assign(Entries() * SizeOf(dtype), std::byte{0xAA});
    sin = cos;
    unproven.assign(Entries(), false);
    size_t count = 0;
    ComputeSinCosPowers({{.frequencies = Frequencies::kExact,
                          .dtype = dtype,
                          .positions = positions.data(),
                          .inv_freq = inv_freq.data(),
                          .rows = positions.size(),
                          .pairs = inv_freq.size(),
                          .scale = scale,
                          .cos = cos.data(),
                          .sin = sin.data()},
                         log_base.data(),
                         centre,
                         scale_base},
                        [&](size_t row, size_t pair) {
                          unproven[row * inv_freq.size() + pair] = true;
                          ++count;
                          return CosSin{0.0, 0.0};
                        });
    return count;
  }
  CosSin Got(size_t n) const {
    return {reference::Decode(dtype, cos.data() + n * SizeOf(dtype)),
            reference::Decode(dtype, sin.data() + n * SizeOf(dtype))};
  }
  CosSin Want(size_t n) const {
    const double position = positions[n / inv_freq.size()];
    const size_t i = n % inv_freq.size();
    return ScaledSinCos(position, inv_freq[i], dtype, [&](mpfr_ptr value) {
      const RealPrecision working(mpfr_get_prec(value) + 96);
      const Real exponent = (Real(position) - Real(centre)) / Real(scale_base);
      const Real factor = Pow(Real(base[i]), exponent) * Real(scale);
      return mpfr_mul(value, value, factor.get(), MPFR_RNDN) == 0 && exponent == Real(0.0) ? 0 : 1;
    });
  }
};

bool Same(const CosSin& a, const CosSin& b) {
  return std::bit_cast<uint64_t>(a.cos) == std::bit_cast<uint64_t>(b.cos) &&
         std::bit_cast<uint64_t>(a.sin) == std::bit_cast<uint64_t>(b.sin);
}

// Expects the entries that the kernel decides to be right on every target, and the others to be answered. Returns how
// many the best target leaves to the caller.
size_t Check(Table& table) {
  std::vector<CosSin> want;
  for (size_t n = 0; n < table.Entries(); ++n) want.push_back(table.Want(n));
  size_t unproven = 0;
  OnEveryTarget([&] {
    unproven = table.Compute();
    size_t wrong = 0;
    for (size_t n = 0; n < want.size(); ++n) {
      const CosSin got = table.Got(n);
      if (Same(got, table.unproven[n] ? CosSin{0, 0} : want[n]) || wrong++ > 3) continue;
      const size_t i = n % table.inv_freq.size();
      ADD_FAILURE() << std::hexfloat << Name(table.dtype) << " position " << table.positions[n / table.inv_freq.size()]
                    << " of " << table.positions.size() << " frequency " << table.inv_freq[i] << " base "
                    << table.base[i] << " scale " << table.scale << ": " << got.cos << " " << got.sin << " for "
                    << want[n].cos << " " << want[n].sin;
    }
  });
  return unproven;
}

// Has bases of xPos, and its positions are as far from the centre as an exponent of 8, or in some tables of 512.
Table RandomTable(DType dtype, size_t rows, size_t pairs, std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Table table{.dtype = dtype, .scale = std::exp2(between(-8, 8)) * (random() % 4 == 0 ? -1 : 1)};
  const double theta = std::exp2(between(4, 20));
  for (size_t i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    table.inv_freq.push_back(std::pow(theta, -share));
    table.base.push_back((share + 0.4) / 1.4);
  }
  const double first = std::floor(between(-1, 1) * std::exp2(between(-1, random() % 4 == 0 ? 40 : 14)));
  const double step = std::vector<double>{1, 1, -1, 0.25, 7}[random() % 5];
  for (size_t row = 0; row < rows; ++row) table.positions.push_back(first + static_cast<double>(row) * step);
  if (random() % 2 == 0) std::shuffle(table.positions.begin(), table.positions.end(), random);  // no run
  table.scale_base = std::exp2(between(3, 12)) * (random() % 2 == 0 ? -1 : 1);
  table.centre = first - std::round(table.scale_base * between(-1, 1) * (random() % 4 == 0 ? 512 : 8));
  return table;
}

TEST(SinCosPowers, RandomEntriesAreCorrectlyRounded) {
  std::mt19937_64 random(PrintedSeed(20261125));
  for (const DType dtype : kDTypes) {
    size_t entries = 0, unproven = 0;
    for (size_t n = 0; n < 60 * Times() / OneIn(); ++n) {
      Table table = RandomTable(dtype, 20 + n % 61, 1 + n % 37, random);
      if (n % 4 == 0) table.inv_freq[0] = 0;
      if (n % 4 == 1) table.centre = table.positions[n % table.positions.size()];
      unproven += Check(table);
      entries += table.Entries();
    }
    std::cout << Name(dtype) << ": " << unproven << " of " << entries << " pairs are left to the caller\n";
    EXPECT_LT(unproven, entries / 4) << Name(dtype);  // those of large exponents
  }
}

// The scale puts the cosine or sine within 64 units in the last place, as a double, of the middle between two numbers.
TEST(SinCosPowers, EntriesNearTiesAreRightOrLeftToTheCaller) {
  std::mt19937_64 random(PrintedSeed(20261126));
  for (const DType dtype : kDTypes) {
    const int bits = dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
    for (const size_t rows : {1, 33}) {  // 33 are a run
      size_t cases = 0, unproven = 0;
      for (; cases < (rows == 1 ? 2000 : 200) * Times() / OneIn(); ++cases) {
        Table table = RandomTable(dtype, 1, 1, random);
        for (size_t row = 1; row < rows; ++row) {
          table.positions.push_back(table.positions[0] + static_cast<double>(row));
        }
        table.base[0] = std::uniform_real_distribution<double>(0.28, 1)(random);
        table.inv_freq[0] = std::uniform_real_distribution<double>(1e-6, 1)(random);
        table.scale_base = std::copysign(std::max(std::abs(table.scale_base), 64.0), table.scale_base);
        table.centre = table.positions[0] + std::remainder(table.positions[0] - table.centre, 8 * table.scale_base);
        const double middle =
            std::ldexp(static_cast<double>(2 * (random() >> (65 - bits) | 1ULL << (bits - 1)) + 1), -bits);
        const RealPrecision working(200);
        Real value;
        const double position = table.positions[random() % rows];
        const Real angle = Real(position) * Real(table.inv_freq[0]);
        (random() % 2 == 0 ? mpfr_cos : mpfr_sin)(value.get(), angle.get(), MPFR_RNDN);
        const Real exponent = (Real(position) - Real(table.centre)) / Real(table.scale_base);
        table.scale = NearestDouble(Real(middle) / (value * Pow(Real(table.base[0]), exponent)));
        table.scale *= 1 + static_cast<double>(static_cast<int64_t>(random() % 129) - 64) * 0x1p-52;
        if (!std::isfinite(table.scale)) continue;  // the sine of angle zero
        unproven += Check(table);
      }
      std::cout << Name(dtype) << ": " << unproven << " of " << cases << " entries near ties are left to the caller\n";
      EXPECT_GT(unproven, cases / 10) << Name(dtype);
      EXPECT_LT(unproven, cases / 2) << Name(dtype);  // the bound is not far too large
    }
  }
}

// In runs and, with alternating positions, a row at a time.
TEST(SinCosPowers, FewEntriesAreLeftToTheCaller) {
  for (const DType dtype : kDTypes) {
    for (const bool run : {true, false}) {
      std::mt19937_64 random(1);
      Table table = RandomTable(dtype, 0, 64, random);
      for (size_t n = 0; n < 262144 / OneIn(); ++n) table.positions.push_back(static_cast<double>(run ? n : n ^ 1));
      table.centre = 2048;
      table.scale_base = 32768;
      const size_t unproven = table.Compute(), entries = 2 * table.Entries();
      std::cout << Name(dtype) << ": " << unproven << " of " << entries << " entries are left to the caller\n";
      EXPECT_LE(unproven, entries >> 20) << Name(dtype);
    }
  }
}

TEST(SinCosPowers, InputsBeyondTheProofAreLeftToTheCaller) {
  for (const DType dtype : kDTypes) {
    for (const size_t count : {1, 40}) {
      Table ordinary{dtype, 1.5, std::vector<double>(13, 0.75), std::vector<double>(13, 0.5)};
      for (size_t row = 0; row < count; ++row) ordinary.positions.push_back(3 + static_cast<double>(row));
      ordinary.scale_base = 16;
      EXPECT_EQ(Check(ordinary), 0);
      std::vector<Table> tables(9, ordinary);
      tables[0].scale = 0;
      tables[1].scale = 0x1p301;
      tables[2].scale = -0x1p-301;
      std::fill(tables[3].positions.begin(), tables[3].positions.end(), 0x1p901);
      std::fill(tables[4].positions.begin(), tables[4].positions.end(), 0x1p-801);
      std::fill(tables[5].positions.begin(), tables[5].positions.end(), 0x1p50);
      tables[6].centre = 601 * 16;
      tables[6].scale_base = 15;
      tables[7].scale_base = -0x1p-1074;
      tables[8].centre = NAN;
      OnEveryTarget([&] {
        for (Table& table : tables) {
          EXPECT_EQ(table.Compute(), table.Entries())
              << table.scale << " " << table.positions[0] << " " << table.centre;
        }
      });
    }
  }
}

// Results of all sizes: zeros with signs, subnormals and infinities, and an angle of zero among others.
TEST(SinCosPowers, ExtremeEntriesAreRight) {
  for (const DType dtype : kDTypes) {
    for (const double scale : {1.0, -1.0, 1e-30, -1e-80, 1e30, -1e80}) {
      for (const double position : {0.0, -0.0, 1.0, -5.0, 1e9}) {
        for (const double exponent : {0.0, 1.0, -40.0, 40.0, -130.0, 140.0, -500.0, 500.0}) {
          for (const size_t rows : {1, 33}) {
            Table table{dtype, scale, {1, 0, -0.0, 1e-3, 1e-100, 1e300, 0.5, -2, 3, 0}, std::vector<double>(10, 0.5)};
            if (rows > 1) table.inv_freq[5] = 7;  // 1e300 allows no run
            for (size_t row = 0; row < rows; ++row) table.positions.push_back(position + static_cast<double>(row));
            table.scale_base = 128;
            table.centre = position - 128 * exponent;
            Check(table);
            EXPECT_TRUE(!table.unproven[1] || scale != 1 || exponent != 0);
          }
        }
      }
    }
  }
}

// The last vector of columns: nothing beyond the row is written, which AddressSanitizer detects. Two tiles of columns.
TEST(SinCosPowers, OfAnyCount) {
  std::mt19937_64 random(PrintedSeed(3));
  for (const DType dtype : kDTypes) {
    for (const size_t rows : {1, 33}) {
      for (const size_t count : {0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 23, 31, 32, 257}) {
        Table table = RandomTable(dtype, rows, count, random);
        Check(table);
      }
    }
  }
}

}  // namespace
}  // namespace posenc
