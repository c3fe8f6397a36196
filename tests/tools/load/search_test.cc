#include "tools/load/search.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/load/duration.h"

namespace posenc::load::search_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ten seconds of a server that takes a millisecond up to `knee` calls per second, and a second beyond.
Results At(double rate, double knee) {
  constexpr int kSeconds = 10;
  Results results{.seconds = kSeconds, .steps = {Step{.rate = rate, .seconds = kSeconds}}};
  for (int i = 0; i < kSeconds; ++i) {
    Second second;
    const auto calls = static_cast<int64_t>(rate * (i + 1)) - static_cast<int64_t>(rate * i);
    second.measured.counts = {.intended = calls, .succeeded = calls};
    second.measured.service.Record(rate <= knee ? 1000 : 1'000'000, calls);
    // The client's own lateness counts for nothing.
    second.measured.latency.Record(2'000'000, calls);
    results.steps[0].measured.Merge(second.measured);
    results.timeline.push_back(second);
  }
  return results;
}

struct Tried {
  Found found;
  std::vector<double> rates;
  std::vector<std::optional<bool>> held;
  std::vector<int64_t> tries;
};

Tried Search(const std::function<Results(double rate, int try_of_all)>& server, const SearchOptions& options = {}) {
  Tried tried;
  int tries = 0;
  const auto found = SearchRate(
      *ParseObjective("p99=5ms"), options, [&](double rate) { return std::optional(server(rate, tries++)); },
      [&](const Results& results) {
        tried.rates.push_back(results.steps[0].rate);
        tried.held.push_back(results.steps[0].held);
        tried.tries.push_back(results.steps[0].tries);
      });
  EXPECT_TRUE(found.ok()) << found.status();
  if (found.ok()) tried.found = *found;
  return tried;
}

Tried Search(double knee, const SearchOptions& options = {}) {
  return Search([knee](double rate, int) { return At(rate, knee); }, options);
}

TEST(Search, DoublesThenHalvesTheInterval) {
  const Tried tried = Search(1000, {.first_rate = 300});
  ASSERT_GE(tried.rates.size(), 4);
  EXPECT_THAT(std::vector<double>(tried.rates.begin(), tried.rates.begin() + 4), ElementsAre(300, 600, 1200, 900));
  EXPECT_EQ(tried.held[1], true);
  EXPECT_EQ(tried.held[2], false);
  EXPECT_EQ(tried.tries[2], 1);  // all calls are over the limit
}

TEST(Search, FindsAnyKneeToItsPrecision) {
  for (const double knee : {77.0, 100.0, 1234.0, 54321.0}) {
    const Tried tried = Search(knee);
    EXPECT_LE(tried.found.highest_met, knee);
    EXPECT_GE(tried.found.lowest_missed, knee);
    EXPECT_LE(tried.found.lowest_missed, 1.07 * tried.found.highest_met) << knee;  // 5 % plus the rounding of rates
    EXPECT_LE(tried.rates.size(), 20) << knee;
  }
}

TEST(Search, RepeatsATryUntilItsVerdictIsClear) {
  // Ten calls a second for ten seconds: p99 takes seven tries without a call over the limit.
  const Tried few = Search(1e9, {.first_rate = 10, .most_rate = 10, .most_tries = 20});
  EXPECT_THAT(few.tries, ElementsAre(7));
  EXPECT_EQ(few.found.highest_met, 10);
  const Tried too_few = Search(1e9, {.first_rate = 10, .most_rate = 10, .most_tries = 5});
  EXPECT_EQ(too_few.held[0], std::nullopt);
  EXPECT_EQ(too_few.tries[0], 5);
  EXPECT_EQ(too_few.found.highest_met, 0);
}

// At(rate, knee), but in two of ten seconds `share` of the calls are over the limit.
Results Paused(double rate, double knee, double share) {
  Results results = At(rate, knee);
  if (rate > knee) return results;
  for (const size_t second : {3, 7}) {
    const auto calls = static_cast<int64_t>(share * rate);
    results.timeline[second].measured.service.Record(90'000, calls);
    results.steps[0].measured.service.Record(90'000, calls);
  }
  return results;
}

TEST(Search, OnePauseOfTheMachineDecidesNothing) {
  // 2 % of the calls of the first try are late, all of them in two seconds.
  const auto server = [](double rate, int number) { return number == 0 ? Paused(rate, 1000, 0.1) : At(rate, 1000); };
  const Tried tried = Search(server, {.first_rate = 500, .most_tries = 20});
  EXPECT_GT(tried.tries[0], 2);
  EXPECT_EQ(tried.held[0], true);
  EXPECT_GE(tried.found.lowest_missed, 1000);
}

TEST(Search, AnswersARangeWhereRatesStayUnclear) {
  // From 400 to 1,000 calls a second about one call of 100 is over the limit.
  const auto server = [](double rate, int) { return rate > 400 ? Paused(rate, 1000, 0.05) : At(rate, 1000); };
  const Tried tried = Search(server, {.first_rate = 200});
  EXPECT_GE(tried.found.highest_met, 380);
  EXPECT_LE(tried.found.highest_met, 400);
  EXPECT_GE(tried.found.lowest_missed, 1000);
  EXPECT_LE(tried.found.lowest_missed, 1060);
}

TEST(Search, GivesUpDownwardAndUpward) {
  EXPECT_EQ(Search(0).found.highest_met, 0);
  const Tried tried = Search(1e9, {.first_rate = 1000, .most_rate = 5000});
  EXPECT_EQ(tried.found.highest_met, 4000);
  EXPECT_EQ(tried.found.lowest_missed, 0);
  EXPECT_THAT(tried.rates, ElementsAre(1000, 2000, 4000));
}

TEST(Search, StopsWhereTooFewCallsCanBeMade) {
  const auto paused = [](double rate, int) { return Paused(rate, 1e9, 0.2); };
  const Tried tried = Search(paused, {.first_rate = 160, .seconds = 10});
  EXPECT_EQ(tried.found.highest_met, 0);
  EXPECT_GE(tried.rates.back(), 10);  // 5 tries of 10 seconds make 500 calls; p99 takes 657
}

TEST(Search, AClientThatCannotOfferARateMissesIt) {
  const auto slow = [](double rate, int) {
    Results results = At(rate, 1e9);
    if (rate > 1000) results.steps[0].seconds = 10.2;
    return results;
  };
  const Tried tried = Search(slow, {.first_rate = 500, .seconds = 10});
  EXPECT_LE(tried.found.highest_met, 1000);
  EXPECT_GE(tried.found.highest_met, 900);
}

TEST(Search, AStopKeepsWhatHeldAndAnErrorEndsIt) {
  int tries = 0;
  const auto nothing = [](const Results&) {};
  const auto stopped = SearchRate(
      *ParseObjective("p99=5ms"), {},
      [&](double at) { return ++tries > 2 ? std::optional<Results>() : std::optional(At(at, 1e9)); }, nothing);
  EXPECT_EQ(stopped->highest_met, 200);
  const auto failed = SearchRate(
      *ParseObjective("p99=5ms"), {},
      [&](double) -> absl::StatusOr<std::optional<Results>> { return absl::InternalError("gone"); }, nothing);
  EXPECT_EQ(failed.status().message(), "gone");
}

TEST(ShareOver, IsWiderWhereSecondsDiffer) {
  const std::vector<Cluster> even(10, {1000, 10}), none(10, {1000, 0});
  std::vector<Cluster> uneven(10, {1000, 0});
  uneven[0].over = 100;
  const Interval narrow = ShareOver(even), wide = ShareOver(uneven), zero = ShareOver(none);
  EXPECT_GT(narrow.low, 0.005);
  EXPECT_LT(narrow.high, 0.02);
  EXPECT_LT(wide.low, 0.002);
  EXPECT_GT(wide.high, 0.05);
  EXPECT_EQ(zero.low, 0);
  EXPECT_LT(zero.high, 0.001);
  EXPECT_EQ(ShareOver({{1000, 10}}).high, 1);  // one second says nothing about others
}

TEST(Objective, JudgesAllPercentilesAndFailures) {
  const Objective objective = *ParseObjective("p50=1ms,p99.9=20ms,max=1s");
  ASSERT_EQ(objective.limits.size(), 3);
  EXPECT_EQ(objective.limits[1].percentile, 99.9);
  EXPECT_EQ(objective.limits[1].microseconds, 20'000);
  EXPECT_EQ(objective.limits[2].percentile, 100);

  const auto verdict = [&](Results results) {
    objective.Judge(&results);
    return results.steps[0].held;
  };
  const Results good = At(1000, 1e9);
  EXPECT_EQ(verdict(good), true);
  Results failing = good;
  for (Second& second : failing.timeline) second.measured.counts.skipped += 100;
  failing.steps[0].measured.counts.skipped += 1000;
  EXPECT_EQ(verdict(failing), false);
  Results slow = good;
  slow.timeline[0].measured.service.Record(2'000'000);
  slow.steps[0].measured.service.Record(2'000'000);
  EXPECT_EQ(verdict(slow), false);  // the maximum
  Results nothing{.steps = {Step{}}};
  EXPECT_EQ(verdict(nothing), std::nullopt);
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
