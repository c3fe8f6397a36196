#include "tools/load/histogram.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "tests/tools/load/histogram_golden.h"

namespace posenc::load::histogram_test {
namespace {

TEST(Histogram, KeepsThreeDigitsInTheBucketsOfHdrHistogram) {
  // A value, and the lowest and highest values that Java's HdrHistogram counts as equal to it.
  constexpr int64_t kExpected[][3] = {
      {0, 0, 0},          {1, 1, 1},          {2047, 2047, 2047},         {2048, 2048, 2049},
      {4095, 4094, 4095}, {4096, 4096, 4099}, {1000000, 999936, 1000447}, {3599999999, 3598712832, 3600809983}};
  for (const auto& [value, lowest, highest] : kExpected) {
    EXPECT_EQ(Histogram::Lowest(Histogram::Index(value)), lowest) << value;
    EXPECT_EQ(Histogram::Highest(Histogram::Index(value)), highest) << value;
  }
}

TEST(Histogram, EveryIndexBeginsWhereTheOneBeforeEnds) {
  for (int32_t index = 1; index <= Histogram::Index(Histogram::kHighest); ++index) {
    ASSERT_EQ(Histogram::Lowest(index), Histogram::Highest(index - 1) + 1) << index;
    ASSERT_EQ(Histogram::Index(Histogram::Lowest(index)), index);
    ASSERT_EQ(Histogram::Index(Histogram::Highest(index)), index);
    ASSERT_LE(Histogram::Highest(index) - Histogram::Lowest(index), Histogram::Lowest(index) / 1000) << index;
  }
}

TEST(Histogram, PercentilesAreThoseOfHdrHistogram) {
  const Histogram squares = Squares();
  EXPECT_EQ(squares.Count(), 1005);
  // The numbers of Java's HdrHistogram 2.2.2.
  EXPECT_EQ(squares.Percentile(0), 0);
  EXPECT_EQ(squares.Percentile(50), 251007);
  EXPECT_EQ(squares.Percentile(75), 565759);
  EXPECT_EQ(squares.Percentile(90), 815615);
  EXPECT_EQ(squares.Percentile(95), 908287);
  EXPECT_EQ(squares.Percentile(99), 986111);
  EXPECT_EQ(squares.Percentile(99.9), 3600809983);
  EXPECT_EQ(squares.Percentile(100), 3600809983);
  EXPECT_EQ(squares.Min(), 0);
  EXPECT_EQ(squares.Max(), 3600809983);
  EXPECT_DOUBLE_EQ(squares.Mean(), 11077746.116417910);
  EXPECT_DOUBLE_EQ(squares.StandardDeviation(), 196364259.59462258);
}

TEST(Histogram, APercentileOfAWholeCountIsNotTheNextValue) {
  Histogram histogram;
  for (int64_t value = 1; value <= 1000; ++value) histogram.Record(value);
  for (int64_t tenths = 1; tenths <= 1000; ++tenths) {
    EXPECT_EQ(histogram.Percentile(static_cast<double>(tenths) / 10), tenths);
  }
}

TEST(Histogram, TakesValuesOutOfRangeAsItsEnds) {
  Histogram histogram;
  histogram.Record(-5);
  histogram.Record(std::numeric_limits<int64_t>::max());
  histogram.Record(7, 0);
  histogram.Record(7, -1);
  EXPECT_EQ(histogram.Count(), 2);
  EXPECT_EQ(histogram.Min(), 0);
  EXPECT_EQ(histogram.Max(), 3600809983);
}

TEST(Histogram, OfNothingSaysZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.Count(), 0);
  EXPECT_EQ(histogram.Percentile(99), 0);
  EXPECT_EQ(histogram.Min(), 0);
  EXPECT_EQ(histogram.Max(), 0);
  EXPECT_EQ(histogram.Mean(), 0);
  EXPECT_EQ(histogram.StandardDeviation(), 0);
}

TEST(Histogram, MergesToWhatOneWouldHaveRecorded) {
  Histogram odd, even, all;
  for (int64_t value = 0; value < 100000; value += 7) {
    (value % 2 ? odd : even).Record(value);
    all.Record(value);
  }
  odd.Merge(even);
  odd.Merge(Histogram());
  EXPECT_EQ(odd, all);
  EXPECT_NE(even, all);
}

}  // namespace
}  // namespace posenc::load::histogram_test
