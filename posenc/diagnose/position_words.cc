#include "posenc/diagnose/position_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/options.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

struct Pair {
  double stated, applied;
};

// A function of one position, and its sentence.
struct PositionRule {
  std::function<double(double)> at;
  Departure departure;
};

// Simple functions that the positions suggest, the likeliest first. `everywhere`: they are of all tokens.
std::vector<PositionRule> Rules(const std::vector<Pair>& all, bool everywhere) {
  const auto moved = std::find_if(all.begin(), all.end(), [](const Pair& one) { return one.stated != one.applied; });
  const Pair& example = moved == all.end() ? all[0] : *moved;
  const double first = example.stated, applied = example.applied;
  const double shift = applied - first, sum = first + applied;
  double largest = applied, least = INFINITY;
  int64_t common = 0;  // divisor of all differences
  bool whole = true;
  for (const Pair& one : all) {
    largest = std::max(largest, one.applied);
    least = std::min(least, one.stated);
    whole &= one.stated == std::floor(one.stated) && one.applied == std::floor(one.applied);
    common = std::gcd(common, static_cast<int64_t>(one.stated - one.applied));
  }
  std::vector<PositionRule> rules;
  const auto add = [&](std::function<double(double)> at, std::string sentence) {
    rules.push_back({std::move(at), {"POSITIONS", std::move(sentence)}});
  };
  add([applied](double) { return applied; },
      fmt::format("all tokens are at position {}, not {}", Short(applied), Short(first)));
  add([shift](double p) { return p + shift; },
      everywhere ? fmt::format("positions start at {}, not {}", Short(least + shift), Short(least))
                 : fmt::format("positions are {} too {}", Short(std::fabs(shift)), shift > 0 ? "large" : "small"));
  rules.push_back(
      {[](double p) { return Widen<BFloat16>(Narrow<BFloat16>(p)); }, FaultDeparture(TableFault::kPositionsBF16)});
  rules.push_back(
      {[](double p) { return Widen<Float16>(Narrow<Float16>(p)); }, FaultDeparture(TableFault::kPositionsFP16)});
  add([sum](double p) { return sum - p; },
      fmt::format("positions run backwards: {} minus the stated position", Short(sum)));
  add([largest](double p) { return std::min(p, largest); },
      fmt::format("positions end at {}: larger ones were clamped", Short(largest)));
  const auto modulo = [&](double m) {
    add([m](double p) { return p - m * std::floor(p / m); }, fmt::format("positions are modulo {}", Short(m)));
  };
  if (whole && common > 1) {
    for (int64_t power = 2; power <= common; power *= 2) {
      if (common % power == 0 && static_cast<double>(power) > largest) modulo(static_cast<double>(power));
    }
    modulo(static_cast<double>(common));
  }
  for (double m = 2; m <= 1024; m *= 2) {
    add([m](double p) { return m * std::floor(p / m); },
        fmt::format("positions were rounded down to multiples of {}", Short(m)));
    add([m](double p) { return std::floor(p / m); },
        fmt::format("positions were divided by {} and rounded down", Short(m)));
  }
  if (first != 0 && applied != 0) {
    const double factor = applied / first;
    add([factor](double p) { return p * factor; },
        factor > 1 ? fmt::format("positions were multiplied by {}", Short(factor))
                   : fmt::format("positions were divided by {}", Short(1 / factor)));
  }
  return rules;
}

// The departure of a rule that gives every position; nullopt if there is none. One token that moved shows no rule.
std::optional<Departure> RuleFor(const std::vector<Pair>& all, bool everywhere) {
  const auto moved = [](const Pair& one) { return one.stated != one.applied; };
  if (std::count_if(all.begin(), all.end(), moved) < 2) return std::nullopt;
  for (const PositionRule& rule : Rules(all, everywhere)) {
    const auto holds = [&rule](const Pair& one) { return rule.at(one.stated) == one.applied; };
    if (std::all_of(all.begin(), all.end(), holds)) return rule.departure;
  }
  return std::nullopt;
}

// How many values from `begin` on have one step.
size_t RunLength(const std::vector<double>& values, size_t begin) {
  if (begin + 1 >= values.size()) return values.size() - begin;
  const double step = values[begin + 1] - values[begin];
  size_t end = begin + 2;
  while (end < values.size() && values[end] - values[end - 1] == step) ++end;
  return end - begin;
}

}  // namespace

std::string Runs(const std::vector<double>& values) {
  constexpr size_t kMostRuns = 4, kRun = 3;
  std::vector<std::string> runs;
  for (size_t n = 0; n < values.size();) {
    if (runs.size() == kMostRuns) {
      runs.back() += ", ...";
      break;
    }
    const size_t length = RunLength(values, n);
    const double step = length > 1 ? values[n + 1] - values[n] : 0;
    const std::string first = Short(values[n]), last = Short(values[n + length - 1]);
    if (length < kRun) {
      runs.push_back(first);
      n += 1;
      continue;
    }
    runs.push_back(step == 0   ? first
                   : step == 1 ? fmt::format("{}-{}", first, last)
                               : fmt::format("{}, {}, ..., {}", first, Short(values[n + 1]), last));
    n += length;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::vector<Departure> PositionDepartures(const std::vector<Placed>& placed,
                                          const std::vector<std::vector<double>>& as_stated,
                                          const std::vector<std::string>& axes) {
  std::vector<Departure> departures;
  const auto is_zero = [](const Placed& one) {
    return one.applied == one.stated ||
           std::all_of(one.applied.begin(), one.applied.end(), [](double p) { return p == 0; });
  };
  if (!placed.empty() && std::all_of(placed.begin(), placed.end(), is_zero)) {
    return {{"NOT_ROTATED", "the rows were not rotated (or are at position 0)"}};
  }
  const size_t count = placed.empty() ? 0 : placed[0].applied.size();
  std::vector<std::string> names, uncertainties;  // of the axes that moved
  std::vector<std::vector<double>> tokens;
  for (size_t axis = 0; axis < count; ++axis) {
    std::vector<Pair> all, moved;
    std::vector<double> stated, applied;
    bool by_index = true;
    double uncertain = 0;
    std::vector<double> moved_tokens;
    for (const Placed& one : placed) {
      all.push_back({one.stated[axis], one.applied[axis]});
      by_index &= static_cast<double>(one.index) == one.applied[axis];
      if (one.stated[axis] == one.applied[axis]) continue;
      moved.push_back(all.back());
      moved_tokens.push_back(static_cast<double>(one.index));
      stated.push_back(one.stated[axis]);
      applied.push_back(one.applied[axis]);
      uncertain = std::max(uncertain, one.uncertainty[axis]);
    }
    if (moved.empty()) continue;
    tokens.push_back(moved_tokens);
    const bool everywhere = as_stated.empty() && moved.size() == all.size();
    for (const std::vector<double>& other : as_stated) all.push_back({other[axis], other[axis]});
    std::optional<Departure> found;
    const auto say = [&found](std::string sentence) { found = {"POSITIONS", std::move(sentence)}; };
    for (size_t other = 0; other < count && !found; ++other) {
      const auto same = [&](const Placed& one) { return one.applied[axis] == one.stated[other]; };
      if (other != axis && std::all_of(placed.begin(), placed.end(), same)) {
        say(fmt::format("positions are those of axis {}", axes[other]));
      }
    }
    if (!found) found = RuleFor(all, everywhere);
    if (!found && by_index && placed.size() > 1) {
      say("positions are the tokens' indices 0, 1, 2, ...; the stated ones were not used");
    }
    if (!found) found = RuleFor(moved, false);
    if (!found && std::any_of(applied.begin(), applied.end(), [](double p) { return p != std::floor(p); })) return {};
    if (!found) say(fmt::format("positions are {}, not {}", Runs(applied), Runs(stated)));
    departures.push_back(*std::move(found));
    names.push_back(axes.empty() ? "" : fmt::format("axis {}: ", axes[axis]));
    uncertainties.push_back(uncertain > 0 ? fmt::format(" (+- {})", Short(uncertain)) : "");
  }
  const auto as_first = [&](const Departure& one) { return one.message == departures[0].message; };
  if (count > 1 && departures.size() == count && std::all_of(departures.begin(), departures.end(), as_first)) {
    departures.resize(1);
    departures[0].message += ", on all axes";
    return departures;
  }
  const bool in_other_tokens =
      std::any_of(tokens.begin(), tokens.end(), [&](const auto& of) { return of != tokens[0]; });
  for (size_t n = 0; n < departures.size(); ++n) {
    departures[n].message = names[n] + departures[n].message + uncertainties[n];
    if (in_other_tokens) departures[n].message += fmt::format(" (tokens {})", Runs(tokens[n]));
  }
  return departures;
}

}  // namespace posenc::diagnose
