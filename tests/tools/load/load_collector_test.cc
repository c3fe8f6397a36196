#include "tools/load/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace posenc::load::load_collector_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(Collector, CallsThatHaveNotEndedMissedTheirDeadline) {
  Progress progress;
  Collector collector({.name = "2/s", .rate = 2, .end_rate = 2, .seconds = 2}, &progress);
  for (const double intended : {0.0, 0.5, 1.0, 1.5}) collector.Start(intended, 0);
  const Ended first{.intended = 0, .at = 0.1, .latency_us = 100'000};
  collector.Answer(first.at, true);
  collector.End(first);
  const Results results = collector.Take(2);
  collector.End({.intended = 0.5, .at = 9});  // comes after the results and must not change anything
  const Measurement& measured = results.steps[0].measured;
  EXPECT_EQ(measured.counts.intended, 4);
  EXPECT_EQ(measured.counts.succeeded, 1);
  EXPECT_EQ(measured.counts.failed, 3);
  EXPECT_THAT(measured.errors, ElementsAre(Pair("DEADLINE_EXCEEDED", 3)));
  ASSERT_EQ(results.timeline.size(), 2);
  EXPECT_EQ(results.timeline[0].measured.counts.failed, 1);
  EXPECT_EQ(results.timeline[1].measured.counts.failed, 2);
  EXPECT_EQ(progress.succeeded, 1);
  EXPECT_EQ(progress.failed, 3);
}

}  // namespace
}  // namespace posenc::load::load_collector_test
