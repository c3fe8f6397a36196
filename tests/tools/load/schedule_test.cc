#include "tools/load/schedule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace posenc::load::schedule_test {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

std::vector<Arrival> All(const StepPlan& plan, Share share = {}) {
  Arrivals arrivals(plan, share);
  std::vector<Arrival> all;
  while (const auto arrival = arrivals.Next()) all.push_back(*arrival);
  return all;
}

std::vector<StepPlan> Plan(const ScheduleFlags& flags) {
  auto plans = PlanSteps(flags);
  EXPECT_TRUE(plans.ok()) << plans.status();
  return plans.ok() ? *plans : std::vector<StepPlan>(1);
}

std::string Refusal(const ScheduleFlags& flags) { return std::string(PlanSteps(flags).status().message()); }

TEST(Schedule, AConstantRateBringsExactlyItsCallsAtEqualDistances) {
  for (const double rate : {0.1, 3.0, 7.0, 200.0, 1000.0, 33333.0}) {
    for (const double seconds : {10.0, 30.0}) {
      const std::vector<Arrival> all = All(StepAt(rate, seconds, ArrivalKind::kConstant, 1));
      ASSERT_EQ(all.size(), static_cast<size_t>(std::llround(rate * seconds))) << rate;
      for (size_t i = 0; i < all.size(); i += 1 + all.size() / 100) {
        EXPECT_EQ(all[i].number, static_cast<int64_t>(i));
        EXPECT_THAT(all[i].seconds, DoubleNear(static_cast<double>(i) / rate, 1e-9));
      }
    }
  }
}

TEST(Schedule, TheCallsOfItsSecondsAreThoseOfTheStep) {
  StepPlan plan = StepAt(1000, 1.5, ArrivalKind::kConstant, 1);
  EXPECT_EQ(plan.CallsBetween(0, 1), 1000);
  EXPECT_EQ(plan.CallsBetween(1, 2), 500);
  EXPECT_EQ(plan.CallsBetween(2, 3), 0);
  plan.end_rate = 1;  // steeply down
  EXPECT_NEAR(plan.CallsBetween(0, 1) + plan.CallsBetween(1, 2), plan.MeanRate() * 1.5, 1e-9);
  EXPECT_GT(plan.CallsBetween(1, 2), 0);
  plan = StepAt(100, 10, ArrivalKind::kConstant, 1);
  plan.count = 150;
  EXPECT_EQ(plan.CallsBetween(0, 1), 100);
  EXPECT_EQ(plan.CallsBetween(1, 2), 50);
  EXPECT_EQ(plan.CallsBetween(2, 3), 0);
  plan = {.concurrency = 8, .seconds = 1};
  EXPECT_EQ(plan.CallsBetween(0, 1), 0);
}

TEST(Schedule, TheCountEndsAStepBeforeItsTime) {
  StepPlan plan = StepAt(100, 10, ArrivalKind::kConstant, 1);
  plan.count = 7;
  EXPECT_EQ(All(plan).size(), 7);
  plan.seconds = 0;
  EXPECT_EQ(All(plan).size(), 7);
  plan.seconds = 0.03;
  EXPECT_EQ(All(plan).size(), 3);
}

TEST(Schedule, ARampsArrivalsFollowItsIntegral) {
  for (const auto& [begin, end] : {std::pair(100.0, 300.0), {300.0, 100.0}}) {
    StepPlan plan = StepAt(begin, 10, ArrivalKind::kConstant, 1);
    plan.end_rate = end;
    const std::vector<Arrival> all = All(plan);
    ASSERT_EQ(all.size(), 2000);
    for (const Arrival& arrival : all) {
      const double t = arrival.seconds;
      EXPECT_THAT(begin * t + (end - begin) * t * t / 20, DoubleNear(static_cast<double>(arrival.number), 1e-6));
      EXPECT_LT(t, 10);
    }
    EXPECT_EQ(plan.RateAt(0), begin);
    EXPECT_EQ(plan.RateAt(5), 200);
    EXPECT_EQ(plan.MeanRate(), 200);
  }
}

TEST(Schedule, PoissonArrivalsHaveTheExponentialsMeanAndSpread) {
  const std::vector<Arrival> all = All(StepAt(1000, 100, ArrivalKind::kPoisson, 5));
  // 100,000 are expected, with a standard deviation of 316.
  EXPECT_NEAR(static_cast<double>(all.size()), 1e5, 1600);
  double sum = 0, squares = 0;
  int64_t longer_than_mean = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const double gap = 1000 * (all[i].seconds - all[i - 1].seconds);
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    longer_than_mean += gap > 1 ? 1 : 0;
  }
  const auto n = static_cast<double>(all.size() - 1);
  EXPECT_NEAR(squares / n - sum / n * sum / n, 1, 0.05);  // the variance equals the mean's square
  EXPECT_NEAR(static_cast<double>(longer_than_mean) / n, std::exp(-1.0), 0.01);
}

TEST(Schedule, TheSeedAloneDecides) {
  const auto times = [](uint64_t seed) {
    std::vector<double> seconds;
    for (const Arrival& arrival : All(StepAt(50, 2, ArrivalKind::kPoisson, seed))) seconds.push_back(arrival.seconds);
    return seconds;
  };
  EXPECT_EQ(times(3), times(3));
  EXPECT_NE(times(3), times(4));
}

TEST(Schedule, SeveralProcessesTogetherAreOne) {
  for (const ArrivalKind kind : {ArrivalKind::kConstant, ArrivalKind::kPoisson}) {
    const StepPlan plan = StepAt(100, 3, kind, 9);
    const std::vector<Arrival> one = All(plan);
    std::vector<Arrival> several;
    for (int64_t i = 0; i < 3; ++i) {
      for (const Arrival& arrival : All(plan, {i, 3})) several.push_back(arrival);
    }
    std::sort(several.begin(), several.end(), [](const Arrival& a, const Arrival& b) { return a.number < b.number; });
    ASSERT_EQ(several.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(several[i].number, one[i].number);
      EXPECT_EQ(several[i].seconds, one[i].seconds);
    }
  }
}

TEST(Schedule, FlagsBecomeSteps) {
  const auto steps = Plan({.rate = "100,200..400", .seconds = 5, .warm_up_seconds = 2, .seed = 1});
  ASSERT_EQ(steps.size(), 3);
  EXPECT_TRUE(steps[0].warm_up);
  EXPECT_EQ(steps[0].rate, 100);
  EXPECT_EQ(steps[0].seconds, 2);
  EXPECT_EQ(steps[1].name, "100/s");
  EXPECT_FALSE(steps[1].warm_up);
  EXPECT_EQ(steps[2].name, "200..400/s");
  EXPECT_EQ(steps[2].end_rate, 400);
  EXPECT_NE(steps[1].seed, steps[2].seed);

  const auto closed = Plan({.concurrency = "1,8", .count = 100});
  ASSERT_EQ(closed.size(), 2);
  EXPECT_EQ(closed[1].name, "concurrency 8");
  EXPECT_EQ(closed[1].concurrency, 8);
  EXPECT_FALSE(closed[1].open_loop());
}

TEST(Schedule, RefusesWhatIsNoSchedule) {
  EXPECT_THAT(Refusal({.seconds = 1}), HasSubstr("rate, concurrency"));
  EXPECT_THAT(Refusal({.rate = "1", .concurrency = "1", .seconds = 1}), HasSubstr("give exactly one of them"));
  EXPECT_THAT(Refusal({.rate = "1"}), HasSubstr("duration, count"));
  EXPECT_THAT(Refusal({.rate = "1..2", .count = 5}), HasSubstr("required for a ramp"));
  for (const char* rate : {"0", "-1", "x", "", "1,", "1..", "..2", "nan", "inf", "1e9", "1 ", "1..2..3"}) {
    if (*rate == '\0') continue;
    EXPECT_THAT(Refusal({.rate = rate, .seconds = 1}), HasSubstr("rate")) << rate;
  }
  for (const char* concurrency : {"0", "-1", "1.5", "1e3", "100001"}) {
    EXPECT_THAT(Refusal({.concurrency = concurrency, .seconds = 1}), HasSubstr("concurrency")) << concurrency;
  }
}

}  // namespace
}  // namespace posenc::load::schedule_test
