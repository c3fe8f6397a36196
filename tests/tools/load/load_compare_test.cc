#include "tools/load/compare.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"

namespace posenc::load::load_compare_test {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

// Ten seconds of calls with one latency.
Results Steady(int64_t calls, int64_t latency_us, int64_t failed = 0) {
  Results results{.seconds = 10, .steps = {Step{.rate = 100}}};
  results.total.counts = {.intended = calls + failed, .succeeded = calls, .failed = failed};
  results.total.latency.Record(latency_us, calls);
  return results;
}

auto Figures(const std::vector<Regression>& regressions) {
  std::vector<std::string> figures;
  for (const Regression& regression : regressions) figures.push_back(regression.figure);
  return figures;
}

TEST(Compare, FindsNothingInTheSameOrABetterRun) {
  EXPECT_THAT(Regressions(Steady(1000, 500, 10), Steady(1000, 500, 10), 0), IsEmpty());
  EXPECT_THAT(Regressions(Steady(1000, 500, 10), Steady(2000, 250), 0), IsEmpty());
}

TEST(Compare, LetsFiguresBeWorseByTheShare) {
  EXPECT_THAT(Regressions(Steady(1000, 1000), Steady(951, 1049), 0.05), IsEmpty());
  EXPECT_THAT(Figures(Regressions(Steady(1000, 1000), Steady(949, 1000), 0.05)), ElementsAre("throughput, calls/s"));
  EXPECT_THAT(Figures(Regressions(Steady(1000, 1000), Steady(1000, 1051), 0.05)),
              ElementsAre("p50 latency, ms", "p99 latency, ms", "p99.9 latency, ms"));
}

TEST(Compare, SeesTheTailAlone) {
  Results now = Steady(1000, 500);
  now.total.latency.Record(90000, 5);
  EXPECT_THAT(Figures(Regressions(Steady(1000, 500), now, 0.05)), ElementsAre("p99.9 latency, ms"));
}

TEST(Compare, SaysBeforeAfterAndRatio) {
  const auto regressions = Regressions(Steady(1000, 1000), Steady(800, 1000), 0.05);
  ASSERT_EQ(regressions.size(), 1);
  EXPECT_EQ(regressions[0].before, 100);
  EXPECT_EQ(regressions[0].after, 80);
  EXPECT_EQ(regressions[0].ratio, 0.8);
  EXPECT_EQ(Describe(regressions[0]), "throughput, calls/s: was 100, is 80 (20.0 % less)");
}

TEST(Compare, AnErrorAfterNoneIsARegression) {
  const auto regressions = Regressions(Steady(1000, 1000), Steady(999, 1000, 1), 0.05);
  ASSERT_THAT(Figures(regressions), ElementsAre("errors, share of calls"));
  EXPECT_TRUE(std::isinf(regressions[0].ratio));
  EXPECT_EQ(Describe(regressions[0]), "errors, share of calls: was 0, is 0.001");
  EXPECT_THAT(Figures(Regressions(Steady(990, 1000, 10), Steady(989, 1000, 11), 0.05)),
              ElementsAre("errors, share of calls"));
}

TEST(Compare, OfSearchesComparesTheHighestRateAlone) {
  Results before = SearchResults(), now = before;
  now.total.latency.Record(1'000'000, 1'000'000);
  EXPECT_THAT(Regressions(before, now, 0.05), IsEmpty());
  now.highest_rate = 1100;
  EXPECT_THAT(Regressions(before, now, 0.05),
              ElementsAre(Field(&Regression::figure, "highest rate that met the objective, calls/s")));
}

std::string Said(const Results& before, const Results& now) {
  return std::string(CompareWith({before, 0.05}, now).message());
}

TEST(Compare, WhatCannotBeComparedIsNoSuccess) {
  const Results search = SearchResults(), steady = Steady(1000, 1000);
  EXPECT_EQ(Said(steady, steady), "");
  EXPECT_EQ(Said(search, search), "");
  EXPECT_TRUE(CompareWith({}, steady).ok());
  Results other = steady;
  other.interrupted = true;
  EXPECT_EQ(Said(steady, other), "not compared with the baseline: this run was interrupted");
  EXPECT_EQ(Said(other, steady), "not compared with the baseline: the baseline was interrupted");
  other = steady;
  other.steps[0].name = "200/s";
  EXPECT_EQ(Said(steady, other), "not compared with the baseline: the baseline has different steps");
  other = search;
  other.mix_json = R"({"seed": 1, "calls": []})";
  EXPECT_EQ(Said(search, other), "not compared with the baseline: the baseline has a different mix of calls");
  Results seeded = other;
  seeded.mix_json = R"({"calls": [], "seed": 2})";
  EXPECT_EQ(Said(seeded, other), "");
  other = steady;
  other.mix_json = search.mix_json;
  EXPECT_EQ(Said(search, other), "not compared with the baseline: only one of the two runs is a search");
}

TEST(Compare, NoAnswersAtAllIsARegression) {
  EXPECT_THAT(Figures(Regressions(Steady(1000, 1000), Steady(0, 0, 1000), 0.05)),
              ElementsAre("throughput, calls/s", "errors, share of calls"));
}

}  // namespace
}  // namespace posenc::load::load_compare_test
