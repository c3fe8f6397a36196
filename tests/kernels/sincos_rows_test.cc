#include "posenc/kernels/sincos_rows.h"

#include <gtest/gtest.h>
#include <hwy/base.h>
#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "posenc/kernels/position_runs.h"
#include "posenc/kernels/sincos_slow.h"
#include "tests/kernels/one_in.h"
#include "tests/kernels/sincos_hard_cases.h"
#include "tests/reference/sincos_oracle.h"

namespace posenc {
namespace {

constexpr uint64_t kSeed = 20240517;

constexpr DType kDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};
constexpr Frequencies kRecipes[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};

const char* Name(Frequencies frequencies) {
  return frequencies == Frequencies::kExact ? "exact" : frequencies == Frequencies::kFloat64 ? "float64" : "float32";
}

// The inputs of a computation, with memory for its outputs.
struct Table {
  Frequencies frequencies = Frequencies::kExact;
  DType dtype = DType::kFP32;
  std::vector<double> positions;
  std::vector<double> inv_freq;
  double scale = 1.0;
  bool divide = false;
  std::vector<uint8_t> cos;
  std::vector<uint8_t> sin;

  SinCosRows Work() {
    cos.assign(positions.size() * inv_freq.size() * SizeOf(dtype), 0xAA);
    sin = cos;
    return {frequencies,     dtype, positions.data(), inv_freq.data(), positions.size(),
            inv_freq.size(), scale, divide,           cos.data(),      sin.data()};
  }
};

bool Same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Computes the table, prints the first few entries that differ from the oracle's, and returns how many differ.
size_t WrongEntries(Table& table, SinCosSlowPath slow_path = SinCosSlow, int bits = 400, bool show = true) {
  const SinCosRows work = table.Work();
  RunWithSlowPath(work, 0, work.rows, slow_path);
  size_t wrong = 0;
  for (size_t i = 0; i < work.rows * work.pairs; ++i) {
    const double position = work.positions[i / work.pairs];
    const double inv_freq = work.inv_freq[i % work.pairs];
    const OracleEntry want = SinCosOracle(work, position, inv_freq, bits);
    const double cos = Element(work.cos, i, work.dtype);
    const double sin = Element(work.sin, i, work.dtype);
    const size_t wrong_here = !Same(cos, want.cos) + !Same(sin, want.sin);
    if (show && wrong_here != 0 && wrong < 5) {
      ADD_FAILURE() << std::hexfloat << Name(work.frequencies) << " " << Name(work.dtype) << " position " << position
                    << " inv_freq " << inv_freq << " scale " << work.scale << " divide " << work.divide << ": cos "
                    << cos << " for " << want.cos << ", sin " << sin << " for " << want.sin << ", seed " << kSeed;
    }
    wrong += wrong_here;
  }
  return wrong;
}

std::vector<double> ThetaFrequencies(double theta, size_t pairs) {
  std::vector<double> inv_freq(pairs);
  for (size_t i = 0; i < pairs; ++i)
    inv_freq[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
  return inv_freq;
}

std::vector<double> RandomPositions(size_t count, uint64_t limit, std::mt19937_64& random) {
  std::vector<double> positions(count);
  for (double& position : positions) position = static_cast<double>(random() % limit);
  return positions;
}

// Rounds frequencies to float32, as in a kFloat32 recipe.
void RoundToFloat(std::vector<double>& values) {
  for (double& value : values) value = static_cast<float>(value);
}

std::atomic<size_t> slow_calls;
CosSin CountingSlowPath(const SinCosRows& work, double position, double inv_freq) {
  ++slow_calls;
  return SinCosSlow(work, position, inv_freq);
}

TEST(SinCosRows, AMillionRandomFP32EntriesAreCorrectlyRounded) {
  std::mt19937_64 random(kSeed);
  slow_calls = 0;
  size_t entries = 0;
  for (const double theta : {10000.0, 500000.0, 1e6, 150000.0}) {
    Table table;
    table.positions = RandomPositions(4096 / OneIn(), uint64_t{1} << 31, random);
    table.inv_freq = ThetaFrequencies(theta, 64);
    EXPECT_EQ(WrongEntries(table, CountingSlowPath), 0u);
    entries += table.positions.size() * table.inv_freq.size();
  }
  EXPECT_GE(entries * OneIn(), 1'000'000u);
  std::cout << "slow path: " << slow_calls << " of " << entries << " pairs\n";
  EXPECT_LT(slow_calls, entries / 1000);
}

// POSENC_TEST_TIMES=100 tests ten million pairs of each type.
TEST(SinCosRows, RandomThetasAndPositionsUpToTwoTo40) {
  std::mt19937_64 random(kSeed + 40);
  std::uniform_real_distribution<double> exponent(0, 9);
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    size_t pairs = 0, wrong = 0;
    for (; pairs < 100'000 * Times() / OneIn(); pairs += 32 * 32) {
      Table table;
      table.dtype = dtype;
      table.inv_freq = ThetaFrequencies(std::pow(10, exponent(random)), 32);
      table.positions = RandomPositions(32, uint64_t{1} << 40, random);
      if (random() % 2 == 0) {  // half of the tables are runs
        for (size_t i = 1; i < 32; ++i) table.positions[i] = table.positions[0] + static_cast<double>(i);
      }
      wrong += WrongEntries(table);
    }
    std::cout << posenc::Name(dtype) << ": " << wrong << " wrong of " << pairs << " pairs\n";
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(SinCosRows, EveryRecipeTypeAndScaleIsCorrectlyRounded) {
  std::mt19937_64 random(kSeed + 1);
  for (const Frequencies frequencies : kRecipes) {
    for (const DType dtype : kDTypes) {
      for (const double scale : {1.0, 1.1386294361119891, 0.1, -3.75, 1e5, 1e-6, 3e38, 1e-40, 1e300, 5e-324}) {
        for (const bool divide : {false, true}) {
          Table table;
          table.frequencies = frequencies;
          table.dtype = dtype;
          table.scale = scale;
          table.divide = divide;
          table.positions = RandomPositions(8, uint64_t{1} << 31, random);
          for (int i = 0; i < 24; ++i) {  // negative, fractional, and of all sizes
            const double exponent = std::uniform_real_distribution<double>(-40, 46)(random);
            table.positions.push_back((i % 2 == 0 ? 1 : -1) * std::exp2(exponent));
          }
          table.inv_freq = ThetaFrequencies(10000.0, 29);
          if (frequencies == Frequencies::kFloat32) RoundToFloat(table.inv_freq);
          EXPECT_EQ(WrongEntries(table), 0u) << Name(frequencies) << " " << Name(dtype) << " scale " << scale;
        }
      }
    }
  }
}

std::vector<double> EquallySpaced(double first, double step, size_t rows) {
  std::vector<double> positions(rows);
  for (size_t row = 0; row < rows; ++row) positions[row] = first + static_cast<double>(row) * step;
  EXPECT_TRUE(FirstRun(positions.data(), rows).equally_spaced) << first << " " << step;
  return positions;
}

TEST(SinCosRows, RunsAreCorrectlyRounded) {
  std::mt19937_64 random(kSeed + 3);
  slow_calls = 0;
  size_t entries = 0;
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (size_t n = 0; n < 48 / std::min<size_t>(OneIn(), 8); ++n) {
      Table table;
      table.dtype = dtype;
      table.scale = std::vector<double>{1, 1.1386294361119891, -3.75, 0.1, 1e5, 1e-40, 1e60}[n % 7];
      table.divide = n % 5 == 3;
      // Positions up to 2^44, some through zero.
      const auto size = static_cast<double>(random() >> (20 + n % 44));
      const double step = std::vector<double>{1, -1, 0.125, 1, 7, 64}[n % 6];
      const auto third = static_cast<int>(n / 3);
      table.positions = EquallySpaced(n % 3 == 0 ? -step * third : size, step, 32 + n % 67);
      table.inv_freq = ThetaFrequencies(std::vector<double>{1e4, 5e5, 1e12}[n % 3], 1 + n % 29);
      if (n % 4 == 0) table.inv_freq.push_back(0);
      EXPECT_EQ(WrongEntries(table, CountingSlowPath), 0u) << Name(dtype) << " scale " << table.scale;
      entries += table.positions.size() * table.inv_freq.size();
    }
  }
  std::cout << "slow path: " << slow_calls << " of " << entries << " pairs\n";
}

// The run has two tiles of columns and many blocks.
TEST(SinCosRows, LongRunsHaveTheValuesOfSingleRows) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    Table run, rows;
    run.dtype = rows.dtype = dtype;
    run.positions = EquallySpaced(-3000, 1, 20000 / OneIn());
    run.inv_freq = rows.inv_freq = ThetaFrequencies(1e4, 300);
    rows.positions = run.positions;
    ComputeSinCosRows(run.Work(), 0, run.positions.size());
    const SinCosRows work = rows.Work();
    for (size_t row = 0; row < work.rows; ++row) ComputeSinCosRows(work, row, row + 1);
    EXPECT_TRUE(run.cos == rows.cos && run.sin == rows.sin) << Name(dtype);
  }
}

// Large tables are stored past the caches if they are aligned: here with two tiles of columns, and with a row that is
// stored again because an entry needs the slow path.
TEST(SinCosRows, LargeTablesHaveTheSameBytes) {
  constexpr size_t kPairs = 304, kRows = 100, kEntries = kPairs * kRows;
  const HardCase hard = AnglesOfBoundaries(DType::kFP32, 1, 20000, kSeed)[0];
  const std::vector<double> positions = EquallySpaced(hard.position - kRows / 2, 1, kRows);
  std::vector<double> inv_freq = ThetaFrequencies(1e4, kPairs);
  inv_freq.back() = hard.inv_freq;
  std::vector<float> memory(4 * kEntries + 64);
  for (const size_t offset : {0, 1}) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    float* const out = memory.data() + (hwy::RoundUpTo(address, 64) - address) / sizeof(float) + offset;
    SinCosRows work = {.frequencies = Frequencies::kExact,
                       .dtype = DType::kFP32,
                       .positions = positions.data(),
                       .inv_freq = inv_freq.data(),
                       .rows = kRows,
                       .pairs = kPairs,
                       .cos = out,
                       .sin = out + kEntries};
    slow_calls = 0;
    RunWithSlowPath(work, 0, kRows, CountingSlowPath);
    EXPECT_GT(slow_calls, 0);
    work.cos = out + 2 * kEntries;
    work.sin = out + 3 * kEntries;
    work.large = true;
    ComputeSinCosRows(work, 0, kRows);
    EXPECT_EQ(std::memcmp(out, out + 2 * kEntries, 2 * kEntries * sizeof(float)), 0) << offset;
  }
}

TEST(SinCosRows, FirstRunFindsEqualSpacing) {
  const auto expect = [](const std::vector<double>& positions, size_t rows, bool equally_spaced) {
    const PositionRun run = FirstRun(positions.data(), positions.size());
    EXPECT_EQ(run.rows, rows) << positions[0];
    EXPECT_EQ(run.equally_spaced, equally_spaced) << positions[0];
  };
  const auto spaced = [](double first, double step, size_t rows) {
    std::vector<double> positions(rows);
    for (size_t row = 0; row < rows; ++row) positions[row] = first + static_cast<double>(row) * step;
    return positions;
  };
  expect(spaced(0, 1, 100), 100, true);
  expect(spaced(-7.5, 0.25, kShortestRun), kShortestRun, true);
  expect(spaced(3, 0, 40), 40, true);
  expect(spaced(0x1p50, 1, 40), 40, false);  // the middle between two positions must be a double as well
  expect(spaced(0, 1, kShortestRun - 1), kShortestRun - 1, false);
  expect(spaced(0, 0.1, 100), 100, false);          // every product is rounded
  expect(spaced(1e-310, 1e-310, 100), 100, false);  // the quantum underflows
  expect(spaced(0, 1, kLongestRun + 9), kLongestRun, true);
  std::vector<double> positions = spaced(5, 1, 100);
  positions[60] = 5;
  expect(positions, 60, true);
  positions[20] = 5;
  expect(positions, 20, false);
  // The second position is not first + (rounded) step.
  positions = spaced(0x1p45, 1 - 0x1p45, 40);
  positions[1] = 1 + 0x1p-10;
  expect(positions, 1, false);
}

// Returns how many cases come out wrong, each computed as a table of one entry.
size_t WrongHardCases(const std::vector<HardCase>& cases, DType dtype, SinCosSlowPath slow_path, int bits) {
  size_t wrong = 0;
  for (const HardCase& hard : cases) {
    Table table;
    table.dtype = dtype;
    table.positions = {hard.position};
    table.inv_freq = {hard.inv_freq};
    table.scale = hard.scale;
    wrong += WrongEntries(table, slow_path, bits, slow_path != nullptr) != 0;
  }
  return wrong;
}

// More than `expected_share` of the cases must come out wrong without the slow path; otherwise they test nothing.
void ExpectSlowPathIsNeeded(const std::string& what, const std::vector<HardCase>& cases, DType dtype,
                            double expected_share, int bits = 400) {
  EXPECT_EQ(WrongHardCases(cases, dtype, SinCosSlow, bits), 0u) << what;
  const size_t wrong = WrongHardCases(cases, dtype, nullptr, bits);
  std::cout << Name(dtype) << " " << what << ": without the slow path " << wrong << " of " << cases.size()
            << " are wrong\n";
  EXPECT_GT(static_cast<double>(wrong), expected_share * static_cast<double>(cases.size())) << what;
}

// Returns how many cases come out wrong, each in a run whose other rows are ordinary.
size_t WrongHardCasesInRuns(const std::vector<HardCase>& cases, DType dtype, SinCosSlowPath slow_path) {
  size_t wrong = 0;
  for (size_t n = 0; n < cases.size(); ++n) {
    const HardCase& hard = cases[n];
    const size_t row = n % 40;
    Table table;
    table.dtype = dtype;
    table.positions = EquallySpaced(hard.position - static_cast<double>(row), 1, 40);
    table.inv_freq = {hard.inv_freq};
    table.scale = hard.scale;
    const SinCosRows work = table.Work();
    RunWithSlowPath(work, 0, work.rows, slow_path);
    const OracleEntry want = SinCosOracle(work, hard.position, hard.inv_freq);
    wrong += !Same(Element(work.cos, row, dtype), want.cos) || !Same(Element(work.sin, row, dtype), want.sin);
  }
  return wrong;
}

TEST(SinCosRows, HardCasesInRunsNeedTheSlowPath) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    // Scales on boundaries are excluded, because they make every row of their table hard.
    const bool fp16 = dtype == DType::kFP16;
    for (const bool of : {true, false}) {
      const std::vector<HardCase> cases = of ? AnglesOfBoundaries(dtype, 1000, 2000, kSeed + 1)
                                             : AnglesOnBoundaries(dtype, 1000, fp16 ? -25 : -60, kSeed + 1);
      EXPECT_EQ(WrongHardCasesInRuns(cases, dtype, SinCosSlow), 0u) << Name(dtype) << " " << of;
      const size_t wrong = WrongHardCasesInRuns(cases, dtype, nullptr);
      std::cout << Name(dtype) << " angles " << (of ? "of" : "on") << " boundaries in runs: without the slow path "
                << wrong << " of " << cases.size() << " are wrong\n";
      EXPECT_GT(wrong, of ? 200u : fp16 ? 10u : 300u) << Name(dtype) << " " << of;
    }
  }
}

TEST(SinCosRows, TenThousandHardCasesOfEachTypeNeedTheSlowPath) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    // The sine of a boundary in FP16's range is never nearer to it than 2^-50 of its size.
    const bool fp16 = dtype == DType::kFP16;
    ExpectSlowPathIsNeeded("angles of boundaries", AnglesOfBoundaries(dtype, 6000, 2000, kSeed), dtype, 0.2);
    ExpectSlowPathIsNeeded("angles on boundaries", AnglesOnBoundaries(dtype, 3000, fp16 ? -25 : -60, kSeed), dtype,
                           fp16 ? 0.01 : 0.3);
    ExpectSlowPathIsNeeded("scales on boundaries", ScalesOnBoundaries(dtype, 1000, kSeed), dtype, 0.3);
  }
}

TEST(SinCosRows, HardFP64CasesNeedTheSlowPath) {
  const DType dtype = DType::kFP64;
  ExpectSlowPathIsNeeded("angles on boundaries", AnglesOnBoundaries(dtype, 3000, -300, kSeed), dtype, 0.3, 1000);
  // Angles of boundaries come as near as 2^-65, which double-double still decides.
  ExpectSlowPathIsNeeded("angles of boundaries", AnglesOfBoundaries(dtype, 1000, 2000, kSeed), dtype, -1.0);
}

// Computes rows [begin, end) on every target and expects equal outputs, which stay in the table.
void ExpectSameBytesOnEveryTarget(Table& table, size_t begin, size_t end) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  std::vector<uint8_t> cos, sin;
  for (const int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    const SinCosRows work = table.Work();  // vectors of the exact size: AddressSanitizer detects an overrun
    ComputeSinCosRows(work, begin, end);
    if (target == targets.front()) {
      cos = table.cos;
      sin = table.sin;
    }
    EXPECT_TRUE(table.cos == cos && table.sin == sin)
        << hwy::TargetName(target) << " pairs " << work.pairs << " " << Name(work.frequencies) << " "
        << Name(work.dtype) << " scale " << work.scale << ", seed " << kSeed;
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(SinCosRows, EveryTargetWritesTheSameBytesAndNoMore) {
  std::mt19937_64 random(kSeed + 2);
  for (const size_t pairs : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 255, 256, 257, 515}) {
    for (const Frequencies frequencies : kRecipes) {
      for (const DType dtype : kDTypes) {
        Table table;
        table.frequencies = frequencies;
        table.dtype = dtype;
        table.scale = pairs % 2 == 0 ? 1.0 : 0.8;
        table.divide = pairs % 4 == 1;
        table.positions = RandomPositions(5, uint64_t{1} << 40, random);
        table.positions[1] = 0;
        table.positions[3] = -0.37;
        table.inv_freq = ThetaFrequencies(5e5, pairs);
        if (frequencies == Frequencies::kFloat32) RoundToFloat(table.inv_freq);
        ExpectSameBytesOnEveryTarget(table, 1, 4);
        const std::vector<uint8_t> untouched(pairs * SizeOf(dtype), 0xAA);
        for (const std::vector<uint8_t>* out : {&table.cos, &table.sin}) {  // rows 0 and 4 are outside the range
          EXPECT_TRUE(std::equal(untouched.begin(), untouched.end(), out->begin()));
          EXPECT_TRUE(std::equal(untouched.rbegin(), untouched.rend(), out->rbegin()));
        }
        table.positions = EquallySpaced(1e6, 1, 50);
        ExpectSameBytesOnEveryTarget(table, 1, 49);
        for (const std::vector<uint8_t>* out : {&table.cos, &table.sin}) {
          EXPECT_TRUE(std::equal(untouched.begin(), untouched.end(), out->begin()));
          EXPECT_TRUE(std::equal(untouched.rbegin(), untouched.rend(), out->rbegin()));
        }
      }
    }
  }
}

TEST(SinCosRows, EveryTargetRoundsExtremeInputsCorrectly) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const double pi = 3.141592653589793;
  for (const Frequencies frequencies : kRecipes) {
    for (const DType dtype : kDTypes) {
      for (const double scale : {1.0, -1.0, 1e5, 4e38}) {
        Table table;
        table.frequencies = frequencies;
        table.dtype = dtype;
        table.scale = scale;
        table.positions = {0.0,     -0.0,  1e300,   -1e300,    tiny, 1.7976931348623157e308,
                           -1e-300, 1e-30, 0x1p-25, 0x1.8p-24, 1e9,  1e12,
                           1e15,    1e20,  -pi,     pi / 2,    3e-8, -1e-6};
        table.inv_freq = {1.0, 0.0, tiny, 1e-310, 1e300, 0.5, 1e-5, 0x1p-1022, 1e38};
        if (frequencies == Frequencies::kFloat32) table.inv_freq = {1.0, 0.0, 0x1p-149, 0.5, 0x1p-20, 0x1p100};
        // A subnormal position times a subnormal frequency: 2^-2148, whose square is 2^-4296.
        EXPECT_EQ(WrongEntries(table, SinCosSlow, 4400), 0u);
        ExpectSameBytesOnEveryTarget(table, 0, table.positions.size());
      }
    }
  }
}

// Scales half-way between two numbers of the type, and their inverses: how near an angle is to 0 does not matter.
TEST(SinCosRows, TinyAnglesDecideTies) {
  for (const auto& [dtype, half] :
       {std::pair{DType::kFP32, 0x1p-24}, {DType::kFP16, 0x1p-11}, {DType::kBF16, 0x1p-8}, {DType::kFP64, 0x1p-52}}) {
    for (const double scale : {1 + half, 1 + 3 * half, -1 - half, 0x1p-20 * (1 + 3 * half), 1.0, 0x1p-1000}) {
      for (const bool divide : {false, true}) {
        Table table;
        table.dtype = dtype;
        table.scale = scale;
        table.divide = divide;
        table.positions = {1, -1, 1.8125, 0x1p20, std::numeric_limits<double>::denorm_min(), 0.0};
        table.inv_freq = {0x1p-120, 0x1p-151, -0x1.8p-160, 0x1p-390, 0x1.0000000000001p-1000, 0x1p-1074, 1.0};
        EXPECT_EQ(WrongEntries(table, SinCosSlow, 4400), 0u) << Name(dtype) << " " << scale << " " << divide;
      }
    }
  }
}

TEST(SinCosRows, AngleZeroGivesTheScaleAndPositiveZero) {
  for (const Frequencies frequencies : kRecipes) {
    for (const DType dtype : kDTypes) {
      Table table;
      table.frequencies = frequencies;
      table.dtype = dtype;
      table.scale = -0.75;
      table.positions = {0.0, -0.0, 5.0};
      table.inv_freq = {0.0, -0.0, 0.0};
      const SinCosRows work = table.Work();
      ComputeSinCosRows(work, 0, work.rows);
      for (size_t i = 0; i < 9; ++i) {
        EXPECT_TRUE(Same(Element(work.cos, i, dtype), -0.75)) << i << " " << Name(frequencies) << " " << Name(dtype);
        EXPECT_TRUE(Same(Element(work.sin, i, dtype), 0.0)) << i << " " << Name(frequencies) << " " << Name(dtype);
      }
    }
  }
}

TEST(SinCosRows, AngleZeroInARunGivesTheScaleAndPositiveZero) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (const double scale : {-0.75, 1.25, 3.0}) {
      for (const bool divide : {false, true}) {
        Table table;
        table.dtype = dtype;
        table.scale = scale;
        table.divide = divide;
        table.positions = EquallySpaced(-20, 1, 40);
        table.inv_freq = {1e-3, 0.0, -0.0};
        ExpectSameBytesOnEveryTarget(table, 0, 40);
        EXPECT_EQ(WrongEntries(table), 0u);
        table.positions = EquallySpaced(0, 0, 40);
        table.inv_freq = {1e-3, 0.0, -0.0, 1e300, 1e-310};
        ExpectSameBytesOnEveryTarget(table, 0, 40);
        EXPECT_EQ(WrongEntries(table), 0u);
      }
    }
  }
}

TEST(SinCosRows, ScaleZeroGivesZeros) {
  for (const Frequencies frequencies : kRecipes) {
    for (const DType dtype : kDTypes) {
      Table table;
      table.frequencies = frequencies;
      table.dtype = dtype;
      table.scale = 0.0;
      table.positions = {0.0, 1.0, 3.0, 1e9};
      table.inv_freq = ThetaFrequencies(10000.0, 11);
      const SinCosRows work = table.Work();
      ComputeSinCosRows(work, 0, work.rows);
      for (size_t i = 0; i < work.rows * work.pairs; ++i) {
        EXPECT_EQ(Element(work.cos, i, dtype), 0.0);
        EXPECT_EQ(Element(work.sin, i, dtype), 0.0);
        EXPECT_TRUE(frequencies != Frequencies::kExact || !std::signbit(Element(work.cos, i, dtype)));
      }
    }
  }
}

TEST(SinCosRows, EmptyRangesWriteNothing) {
  Table table;
  table.positions = {1.0, 2.0};
  table.inv_freq = {1.0};
  const SinCosRows work = table.Work();
  ComputeSinCosRows(work, 1, 1);
  EXPECT_EQ(table.cos, std::vector<uint8_t>(8, 0xAA));
  table.inv_freq.clear();
  const SinCosRows no_pairs = table.Work();
  ComputeSinCosRows(no_pairs, 0, 2);
}

}  // namespace
}  // namespace posenc
