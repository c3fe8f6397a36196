#include "tools/load/compare.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"

namespace posenc::load::load_compare_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Ten seconds of calls with one latency.
Results Steady(int64_t calls, int64_t latency_us, int64_t failed = 0) {
  Results results{.seconds = 10, .steps = {Step{.rate = 100}}};
  results.total.counts = {.intended = calls + failed, .succeeded = calls, .failed = failed};
  results.total.latency.Record(latency_us, calls);
  return results;
}

// Figures that are worse.
std::vector<std::string> Worse(const Results& before, const Results& now, double tolerated) {
  std::vector<std::string> figures;
  for (const ComparedFigure& figure : Compare({before, "before.json", tolerated}, now).figures) {
    if (figure.worse) figures.push_back(figure.figure);
  }
  return figures;
}

TEST(Compare, FindsNothingInTheSameOrABetterRun) {
  EXPECT_THAT(Worse(Steady(1000, 500, 10), Steady(1000, 500, 10), 0), IsEmpty());
  EXPECT_THAT(Worse(Steady(1000, 500, 10), Steady(2000, 250), 0), IsEmpty());
}

TEST(Compare, LetsFiguresBeWorseByTheShare) {
  EXPECT_THAT(Worse(Steady(1000, 1000), Steady(951, 1049), 0.05), IsEmpty());
  EXPECT_THAT(Worse(Steady(1000, 1000), Steady(949, 1000), 0.05), ElementsAre("throughput, calls/s"));
  EXPECT_THAT(Worse(Steady(1000, 1000), Steady(1000, 1051), 0.05),
              ElementsAre("p50 latency, ms", "p99 latency, ms", "p99.9 latency, ms"));
}

TEST(Compare, SeesTheTailAloneIfEnoughCallsStandBehindIt) {
  Results now = Steady(1000, 500);
  now.total.latency.Record(90000, 5);
  EXPECT_THAT(Worse(Steady(1000, 500), now, 0.05), ElementsAre("p99.9 latency, ms"));
  EXPECT_THAT(Worse(Steady(999, 500), now, 0.05), IsEmpty());
}

TEST(Compare, SaysBeforeAndAfter) {
  const BaselineVerdict verdict = Compare({Steady(1000, 1000), "before.json", 0.05}, Steady(800, 1000));
  EXPECT_STREQ(VerdictOf(verdict), "worse");
  EXPECT_EQ(ToStatus(verdict).message(), "worse than the baseline: throughput, calls/s: was 100, is 80 (20.0 % less)");
  EXPECT_EQ(verdict.baseline, "before.json");
  const BaselineVerdict good = Compare({Steady(1000, 1000), "before.json", 0.05}, Steady(1000, 1000));
  EXPECT_STREQ(VerdictOf(good), "no worse");
  EXPECT_TRUE(ToStatus(good).ok());
}

TEST(Compare, AnErrorAfterNoneIsARegression) {
  EXPECT_THAT(Worse(Steady(1000, 1000), Steady(999, 1000, 1), 0.05), ElementsAre("errors, share of calls"));
  EXPECT_THAT(Worse(Steady(990, 1000, 10), Steady(989, 1000, 11), 0.05), ElementsAre("errors, share of calls"));
  Results skipping = Steady(1000, 1000);
  skipping.total.counts.intended += 1;
  skipping.total.counts.skipped = 1;
  EXPECT_THAT(Worse(Steady(1000, 1000), skipping, 0.05), ElementsAre("skipped, share of calls"));
}

TEST(Compare, ComparesEachStepOfSeveral) {
  const Results before = SteppedResults();
  Results now = before;
  EXPECT_THAT(Worse(before, now, 0), IsEmpty());
  now.steps[1].drain_seconds += 5;
  const BaselineVerdict verdict = Compare({before, "", 0.05}, now);
  EXPECT_EQ(verdict.figures.size(), 3 * 6);
  EXPECT_THAT(std::string(ToStatus(verdict).message()),
              testing::StartsWith("worse than the baseline: 1200/s: throughput, calls/s: was "));
}

TEST(Compare, OfSearchesComparesTheHighestRateAlone) {
  Results before = SearchResults(), now = before;
  now.total.latency.Record(1'000'000, 1'000'000);
  EXPECT_THAT(Worse(before, now, 0.05), IsEmpty());
  now.highest_rate = 1100;
  EXPECT_THAT(Worse(before, now, 0.05), ElementsAre("highest rate that met the objective, calls/s"));
}

std::string Said(const Results& before, const Results& now) {
  return std::string(ToStatus(Compare({before, "", 0.05}, now)).message());
}

TEST(Compare, WhatCannotBeComparedIsNoSuccess) {
  const Results search = SearchResults(), steady = Steady(1000, 1000);
  EXPECT_EQ(Said(steady, steady), "");
  EXPECT_EQ(Said(search, search), "");
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
  EXPECT_THAT(Worse(Steady(1000, 1000), Steady(0, 0, 1000), 0.05),
              ElementsAre("throughput, calls/s", "errors, share of calls"));
}

}  // namespace
}  // namespace posenc::load::load_compare_test
