#include "tools/load/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "tools/files/random.h"

namespace posenc::load {
namespace {

constexpr double kFastest = 1e7;
constexpr int64_t kMostConcurrent = 100'000;
// Tolerance in calls for the rounding of rate * seconds.
constexpr double kRounding = 1e-6;

template <typename Number>
absl::StatusOr<Number> Parse(std::string_view flag, std::string_view text, Number most) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0 && number <= most) return number;
  return InvalidArgument("OUT_OF_RANGE", flag, text, absl::StrCat("must be above 0 and at most ", most));
}

std::string NumberName(double value) { return absl::StrCat(value); }

absl::StatusOr<StepPlan> OpenStep(std::string_view text) {
  const size_t dots = text.find("..");
  StepPlan plan;
  POSENC_ASSIGN_OR_RETURN(plan.rate, Parse("rate", text.substr(0, dots), kFastest));
  plan.end_rate = plan.rate;
  plan.name = absl::StrCat(NumberName(plan.rate), "/s");
  if (dots != std::string_view::npos) {
    POSENC_ASSIGN_OR_RETURN(plan.end_rate, Parse("rate", text.substr(dots + 2), kFastest));
    plan.name = absl::StrCat(NumberName(plan.rate), "..", NumberName(plan.end_rate), "/s");
  }
  return plan;
}

absl::StatusOr<StepPlan> ClosedStep(std::string_view text) {
  StepPlan plan;
  POSENC_ASSIGN_OR_RETURN(plan.concurrency, Parse("concurrency", text, kMostConcurrent));
  plan.name = absl::StrCat("concurrency ", plan.concurrency);
  return plan;
}

}  // namespace

double StepPlan::RateAt(double second) const {
  return rate == end_rate || seconds <= 0 ? rate : rate + (end_rate - rate) * second / seconds;
}

double StepPlan::CallsBetween(double begin, double end) const {
  if (!open_loop()) return 0;
  const auto until = [this](double time) {
    if (seconds > 0) time = std::min(time, seconds);
    const double calls = time * RateAt(time / 2);
    return count > 0 ? std::min(calls, static_cast<double>(count)) : calls;
  };
  return until(end) - until(begin);
}

std::optional<Arrival> Arrivals::Next() {
  const double calls = plan_.seconds > 0 ? plan_.MeanRate() * plan_.seconds : HUGE_VAL;
  for (;;) {
    if (plan_.arrivals == ArrivalKind::kPoisson) {
      expected_ -= std::log1p(-UnitOf(RandomAt(plan_.seed, static_cast<uint64_t>(number_))));
    }
    if (expected_ >= calls - kRounding || (plan_.count > 0 && number_ >= plan_.count)) return std::nullopt;
    // Solves for the time at which the integral of the rate is expected_.
    const double slope = plan_.rate == plan_.end_rate ? 0 : (plan_.end_rate - plan_.rate) / plan_.seconds;
    const double root = std::sqrt(std::max(0.0, plan_.rate * plan_.rate + 2 * slope * expected_));
    const Arrival arrival{number_, 2 * expected_ / (plan_.rate + root)};
    if (plan_.arrivals == ArrivalKind::kConstant) expected_ += 1;
    ++number_;
    if (arrival.number % share_.of == share_.index) return arrival;
  }
}

StepPlan StepAt(double rate, double seconds, ArrivalKind arrivals, uint64_t seed) {
  return {.name = absl::StrCat(NumberName(rate), "/s"),
          .rate = rate,
          .end_rate = rate,
          .seconds = seconds,
          .arrivals = arrivals,
          .seed = seed};
}

absl::StatusOr<std::vector<StepPlan>> PlanSteps(const ScheduleFlags& flags) {
  if (flags.rate.empty() == flags.concurrency.empty()) {
    return InvalidArgument("CONFLICT", "rate, concurrency", "", "give exactly one of them");
  }
  const bool open = !flags.rate.empty();
  std::vector<StepPlan> plans;
  const std::vector<std::string> parts = absl::StrSplit(open ? flags.rate : flags.concurrency, ',');
  for (const std::string& part : parts) {
    POSENC_ASSIGN_OR_RETURN(StepPlan plan, open ? OpenStep(part) : ClosedStep(part));
    plan.seconds = flags.seconds;
    plan.count = flags.count;
    plan.arrivals = flags.arrivals;
    if (plan.rate != plan.end_rate && plan.seconds <= 0) {
      return InvalidArgument("MISSING", "duration", "", "required for a ramp");
    }
    plans.push_back(std::move(plan));
  }
  if (flags.seconds <= 0 && flags.count <= 0) {
    return InvalidArgument("MISSING", "duration, count", "", "give at least one of them");
  }
  if (flags.warm_up_seconds > 0) {
    StepPlan plan = plans[0];
    plan.name = "warm-up";
    plan.end_rate = plan.rate;
    plan.seconds = flags.warm_up_seconds;
    plan.count = 0;
    plan.warm_up = true;
    plans.insert(plans.begin(), std::move(plan));
  }
  for (size_t i = 0; i < plans.size(); ++i) plans[i].seed = RandomAt(flags.seed, i);
  return plans;
}

}  // namespace posenc::load
