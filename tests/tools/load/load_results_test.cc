#include "tools/load/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"
#include "tools/load/figures.h"

namespace posenc::load::load_results_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Results, MergesTwoClientsIntoOneReport) {
  const Results one = SearchResults();
  Results merged = one;
  merged.Merge(one);
  EXPECT_EQ(merged.clients, 2);
  EXPECT_EQ(merged.seconds, 30);
  EXPECT_EQ(merged.total.counts.intended, 2 * one.total.counts.intended);
  EXPECT_EQ(merged.total.counts.succeeded, 2 * one.total.counts.succeeded);
  EXPECT_THAT(merged.total.errors, ElementsAre(Pair("SKIPPED", 680), Pair("UNAVAILABLE", 120)));
  EXPECT_EQ(merged.total.latency.Count(), 2 * one.total.latency.Count());
  EXPECT_EQ(merged.total.latency.Percentile(99), one.total.latency.Percentile(99));
  EXPECT_EQ(merged.total.server_queue.Count(), 2 * one.total.server_queue.Count());
  ASSERT_EQ(merged.timeline.size(), 30);
  EXPECT_EQ(merged.timeline[12].offered, 2400);
  EXPECT_EQ(merged.timeline[12].measured.counts.intended, 2400);
  EXPECT_TRUE(merged.timeline[0].warm_up);
  ASSERT_EQ(merged.steps.size(), 3);
  EXPECT_EQ(merged.steps[1].name, "2400/s");
  EXPECT_EQ(merged.steps[1].rate, 2400);
  EXPECT_EQ(merged.steps[1].seconds, 10);
  EXPECT_EQ(merged.steps[1].measured.counts.intended, 24000);
  EXPECT_EQ(merged.highest_rate, 2400);
  EXPECT_EQ(merged.lowest_missed_rate, 2800);
  EXPECT_EQ(merged.timeline[29].completed, 2 * 1384);
  EXPECT_EQ(merged.verified, 600);
  EXPECT_EQ(merged.mismatches, 2);
  EXPECT_EQ(merged.first_mismatch->element, 77);
  EXPECT_EQ(merged.settings, one.settings);
  EXPECT_THAT(merged.warnings, ElementsAre("the client itself was saturated"));
}

TEST(Results, MergesWhatOnlyOneHas) {
  Results one = SearchResults(), other = SearchResults();
  one.timeline.resize(10);
  one.steps.resize(1);
  one.steps[0].name = "all of it";
  one.first_mismatch.reset();
  other.highest_rate.reset();
  other.steps[0].held = false;
  other.begin_time = "2026-01-02T03:04:04Z";
  other.client_cpu_share = 0.5;
  other.server_version = "0.2.0";
  other.mix_json = "{}";
  other.warnings = {"another"};
  one.Merge(other);
  EXPECT_EQ(one.timeline.size(), 30);
  EXPECT_EQ(one.timeline[9].offered, 1600);
  EXPECT_EQ(one.timeline[10].offered, 1200);
  ASSERT_EQ(one.steps.size(), 3);
  EXPECT_EQ(one.steps[0].name, "all of it");
  EXPECT_EQ(one.steps[0].held, false);
  EXPECT_EQ(one.steps[1].held, true);
  EXPECT_EQ(one.highest_rate, std::nullopt);
  EXPECT_EQ(one.first_mismatch->call, "decode");
  EXPECT_EQ(one.begin_time, "2026-01-02T03:04:04Z");
  EXPECT_EQ(one.client_cpu_share, 0.5);
  EXPECT_EQ(one.server_version, "0.1.0");
  EXPECT_THAT(one.warnings, ElementsAre("the client itself was saturated", "another", HasSubstr("different mixes"),
                                        HasSubstr("different versions"), HasSubstr("different kinds of steps")));
}

TEST(Results, OnlyRunsOfTheSameTimeAreMerged) {
  const Results one = SearchResults();  // 30 seconds
  const auto begun = [](const std::string& time) {
    Results other = SearchResults();
    other.begin_time = time;
    return other;
  };
  EXPECT_TRUE(CheckSameTime(one, one).ok());
  EXPECT_TRUE(CheckSameTime(one, begun("2026-01-02T03:04:21Z")).ok());  // a second is begin_time's resolution
  EXPECT_TRUE(CheckSameTime(begun("2026-01-02T03:04:21Z"), one).ok());
  EXPECT_THAT(CheckSameTime(one, begun("2026-01-02T03:04:22Z")).message(), HasSubstr("began 17 s after"));
  EXPECT_THAT(CheckSameTime(one, begun("2026-01-02T03:03:48Z")).message(), HasSubstr("began 17 s before"));
  Results ended = begun("2026-01-02T03:04:10Z");
  ended.timeline.resize(2);
  EXPECT_THAT(CheckSameTime(one, ended).message(), HasSubstr("the shorter one took 2 s"));
  EXPECT_THAT(CheckSameTime(one, begun("at noon")).message(), HasSubstr("begin_time: is at noon"));
}

TEST(Figures, AreRatesAndSharesOfWhatWasCounted) {
  const Measurement measured{.counts = {.intended = 1000, .skipped = 100, .succeeded = 850, .failed = 50},
                             .request_bytes = 3000,
                             .answer_bytes = 5000};
  const Figures figures = FiguresOf(measured, 2, 0, 16000);
  EXPECT_EQ(figures.intended_per_second, 500);
  EXPECT_EQ(figures.offered_per_second, 450);
  EXPECT_EQ(figures.achieved_per_second, 425);
  EXPECT_EQ(figures.error_share, 0.15);
  EXPECT_EQ(figures.bytes_per_second, 4000);
  EXPECT_EQ(figures.memory_share, 0.25);
  EXPECT_EQ(FiguresOf(measured, 0, 0, 0).achieved_per_second, 0);
  EXPECT_EQ(FiguresOf(measured, 1, 0, 0).memory_share, 0);
  EXPECT_EQ(FiguresOf(Measurement{}, 1, 0, 1).error_share, 0);
}

TEST(Figures, WhatSucceededAfterTheScheduleIsNotAchievedWithinIt) {
  const Measurement measured{.counts = {.intended = 1000, .succeeded = 1000}, .answer_bytes = 3000};
  const Figures figures = FiguresOf(measured, 1, 0.5, 0);
  EXPECT_EQ(figures.intended_per_second, 1000);
  EXPECT_EQ(figures.offered_per_second, 1000);
  EXPECT_EQ(figures.achieved_per_second, 1000 / 1.5);
  EXPECT_EQ(figures.bytes_per_second, 2000);
}

TEST(Results, AStallIsCommonToAllClients) {
  Results one = SteppedResults(), other = SteppedResults();
  other.steps[1].stalls = {{0.5, 0.6}, {2.8, 1}};
  other.steps[2].stalls = {{4, 2}};
  one.Merge(other);
  ASSERT_EQ(one.steps[1].stalls.size(), 1);
  EXPECT_EQ(one.steps[1].stalls[0].begin, 2.8);
  EXPECT_NEAR(one.steps[1].stalls[0].seconds, 0.7, 1e-9);
  EXPECT_TRUE(one.steps[2].stalls.empty());
}

}  // namespace
}  // namespace posenc::load::load_results_test
