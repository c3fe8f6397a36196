#include "tools/load/search.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/load/duration.h"

namespace posenc::load::search_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Results of a server that takes a millisecond up to `knee` calls per second, and a second beyond.
Results At(double rate, double knee, double seconds = 10) {
  Step step{.rate = rate, .seconds = seconds};
  const auto calls = static_cast<int64_t>(rate * seconds);
  step.measured.counts = {.intended = calls, .succeeded = calls};
  step.measured.latency.Record(rate <= knee ? 1000 : 1'000'000, calls);
  Results results;
  results.steps.push_back(std::move(step));
  return results;
}

struct Found {
  double rate = 0;
  std::vector<double> tried;
  std::vector<bool> held;
};

Found Search(double knee, const SearchOptions& options = {}) {
  Found found;
  const auto rate = SearchRate(
      *ParseObjective("p99=5ms"), options, [&](double at) { return std::optional(At(at, knee)); },
      [&](const Results& results) {
        found.tried.push_back(results.steps[0].rate);
        found.held.push_back(*results.steps[0].held);
      });
  EXPECT_TRUE(rate.ok()) << rate.status();
  found.rate = rate.value_or(-1);
  return found;
}

TEST(Search, DoublesThenHalvesTheInterval) {
  const Found found = Search(1000, {.first_rate = 300});
  ASSERT_GE(found.tried.size(), 4);
  EXPECT_EQ(found.tried[0], 300);
  EXPECT_EQ(found.tried[1], 600);
  EXPECT_EQ(found.tried[2], 1200);
  EXPECT_EQ(found.tried[3], 900);
  EXPECT_THAT(std::vector<bool>(found.held.begin(), found.held.begin() + 4), ElementsAre(true, true, false, true));
}

TEST(Search, FindsAnyKneeToItsPrecision) {
  for (const double knee : {1.0, 3.0, 77.0, 100.0, 1234.0, 54321.0}) {
    const Found found = Search(knee);
    EXPECT_LE(found.rate, knee);
    EXPECT_GE(found.rate, knee / 1.07) << knee;  // 5 % between held and missed, plus the rounding of rates
    EXPECT_LE(found.tried.size(), 20) << knee;
  }
}

TEST(Search, GivesUpDownwardAndUpward) {
  EXPECT_EQ(Search(0).rate, 0);
  const Found found = Search(1e9, {.first_rate = 1000, .most_rate = 5000});
  EXPECT_EQ(found.rate, 4000);
  EXPECT_THAT(found.tried, ElementsAre(1000, 2000, 4000));
}

TEST(Search, AStopKeepsWhatHeldAndAnErrorEndsIt) {
  int tries = 0;
  const auto nothing = [](const Results&) {};
  const auto stopped = SearchRate(
      *ParseObjective("p99=5ms"), {},
      [&](double at) { return ++tries > 2 ? std::optional<Results>() : std::optional(At(at, 1e9)); }, nothing);
  EXPECT_EQ(*stopped, 200);
  const auto failed = SearchRate(
      *ParseObjective("p99=5ms"), {},
      [&](double) -> absl::StatusOr<std::optional<Results>> { return absl::InternalError("gone"); }, nothing);
  EXPECT_EQ(failed.status().message(), "gone");
}

TEST(Objective, IsMetByAllPercentilesFewFailuresAndTheWholeRate) {
  Objective objective = *ParseObjective("p50=1ms,p99.9=20ms,max=1s");
  ASSERT_EQ(objective.limits.size(), 3);
  EXPECT_EQ(objective.limits[1].percentile, 99.9);
  EXPECT_EQ(objective.limits[1].microseconds, 20'000);
  EXPECT_EQ(objective.limits[2].percentile, 100);

  Step step = At(100, 1e9).steps[0];
  EXPECT_TRUE(objective.Met(step));
  Step failing = step;
  failing.measured.counts.succeeded -= 1;
  failing.measured.counts.failed += 1;
  EXPECT_TRUE(objective.Met(failing));  // one in a thousand may fail
  failing.measured.counts.skipped += 1;
  EXPECT_FALSE(objective.Met(failing));
  Step slow = step;
  slow.measured.latency.Record(30'000, 5);
  EXPECT_FALSE(objective.Met(slow));
  objective.seconds = 10;
  EXPECT_TRUE(objective.Met(step));
  Step overdue = step;
  overdue.seconds = 10.2;
  EXPECT_FALSE(objective.Met(overdue));
  EXPECT_FALSE(objective.Met(Step{}));
}

TEST(Objective, RefusesWhatIsNone) {
  for (const char* text :
       {"", "p99", "p99=", "p99=5", "99=5ms", "p0=1ms", "p101=1ms", "px=1ms", "p99=5ms,", "p99=-1ms", "mean=1ms"}) {
    const auto objective = ParseObjective(text);
    if (std::string(text) == "p99=5") {
      EXPECT_TRUE(objective.ok());  // the unit is seconds
    } else {
      EXPECT_THAT(std::string(objective.status().message()), HasSubstr("slo")) << text;
    }
  }
}

TEST(Duration, IsWhatPeopleWrite) {
  EXPECT_EQ(*ParseSeconds("x", "10"), 10);
  EXPECT_EQ(*ParseSeconds("x", "1.5s"), 1.5);
  EXPECT_EQ(*ParseSeconds("x", "500ms"), 0.5);
  EXPECT_EQ(*ParseSeconds("x", "2m"), 120);
  for (const char* text : {"", "s", "0", "-1s", "1x", "1 s", "nan", "inf", "1e400"}) {
    EXPECT_THAT(std::string(ParseSeconds("--duration", text).status().message()), HasSubstr("--duration")) << text;
  }
  EXPECT_EQ(*ParseShare("x", "1%"), 0.01);
  EXPECT_EQ(*ParseShare("x", "0.5"), 0.5);
  for (const char* text : {"", "%", "2", "101%", "-1%", "nan", "1%%"}) {
    EXPECT_THAT(std::string(ParseShare("--verify", text).status().message()), HasSubstr("--verify")) << text;
  }
}

}  // namespace
}  // namespace posenc::load::search_test
