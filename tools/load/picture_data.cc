#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/load/figures.h"
#include "tools/load/report_html.h"
#include "tools/load/report_text.h"
#include "tools/load/search.h"
#include "tools/load/wording.h"

namespace posenc::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 600;  // per line over time; a screen shows no more

Json Point(double x, double y) { return {{"x", x}, {"y", y}}; }

double InMilliseconds(int64_t microseconds) { return static_cast<double>(microseconds) / 1000; }

// Points evenly spaced on a logarithmic axis of 1 / (1 - p), up to the maximum at x = count.
Json DistributionPoints(const Histogram& histogram) {
  Json points = Json::array();
  // Avoids 0, which a logarithmic axis cannot show.
  const auto add = [&](double x, int64_t value) {
    points.push_back(Point(x, InMilliseconds(std::max<int64_t>(1, value))));
  };
  const auto count = static_cast<double>(histogram.Count());
  for (int i = 0;; ++i) {
    const double x = std::pow(10, i / 12.0);
    if (x >= count) break;
    add(x, histogram.Percentile(100 * (1 - 1 / x)));
  }
  if (count > 0) add(count, histogram.Max());
  return points;
}

// Lines of the parts of the latency; of a run of several steps, the latency of each.
Json Distribution(const Results& results) {
  Json distribution = Json::array();
  const auto add = [&](const std::string& name, const Histogram& histogram) {
    if (histogram.Count() > 0) distribution.push_back({{"name", name}, {"points", DistributionPoints(histogram)}});
  };
  if (results.stepped()) {
    for (const Step& step : results.steps) add(step.name, step.measured.latency);
  } else {
    for (const auto& [name, histogram] : TimesOf(results.total)) add(name, *histogram);
  }
  return distribution;
}

// Lines over time; a point covers several seconds if there are more than kMostPoints.
Json Timeline(const std::vector<Second>& timeline) {
  Json lines;
  for (const char* name : {"p50", "p99", "max", "intended", "started", "completed", "failed", "skipped"})
    lines[name] = Json::array();
  const size_t group = (timeline.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < timeline.size(); begin += group) {
    const size_t end = std::min(begin + group, timeline.size());
    Measurement measured;
    double offered = 0;
    int64_t completed = 0;
    for (size_t i = begin; i < end; ++i) {
      measured.Merge(timeline[i].measured);
      offered += timeline[i].offered;
      completed += timeline[i].completed;
    }
    const auto seconds = static_cast<double>(end - begin), middle = static_cast<double>(begin) + seconds / 2;
    const auto per_second = [&](double calls) { return Point(middle, calls / seconds); };
    // Null, a gap in the line, if no call succeeded.
    const auto latency = [&](double percentile) {
      return measured.latency.Count() == 0
                 ? Json{{"x", middle}, {"y", nullptr}}
                 : Point(middle, InMilliseconds(std::max<int64_t>(1, measured.latency.Percentile(percentile))));
    };
    lines["p50"].push_back(latency(50));
    lines["p99"].push_back(latency(99));
    lines["max"].push_back(latency(100));
    lines["intended"].push_back(per_second(offered));
    const Counts& counts = measured.counts;
    lines["started"].push_back(per_second(static_cast<double>(counts.intended - counts.skipped)));
    lines["completed"].push_back(per_second(static_cast<double>(completed)));
    lines["failed"].push_back(per_second(static_cast<double>(counts.failed)));
    lines["skipped"].push_back(per_second(static_cast<double>(counts.skipped)));
  }
  return lines;
}

// Warm-up spans [begin, end) in seconds.
Json WarmUp(const std::vector<Second>& timeline) {
  Json spans = Json::array();
  for (size_t i = 0; i < timeline.size(); ++i) {
    if (!timeline[i].warm_up) continue;
    if (i > 0 && timeline[i - 1].warm_up) {
      spans.back()[1] = i + 1;
    } else {
      spans.push_back({i, i + 1});
    }
  }
  return spans;
}

// Spans of the steps on the timeline.
Json StepSpans(const Results& results) {
  Json spans = Json::array();
  for (size_t i = 0; i < results.steps.size(); ++i) {
    const Step& step = results.steps[i];
    const int64_t end = i + 1 < results.steps.size() ? results.steps[i + 1].begin_second
                                                     : static_cast<int64_t>(results.timeline.size());
    spans.push_back({{"name", step.name}, {"from", step.begin_second}, {"to", end}});
  }
  return spans;
}

Json StallSpans(const Results& results) {
  Json spans = Json::array();
  for (const Step& step : results.steps) {
    for (const Stall& stall : step.stalls) {
      const double from = static_cast<double>(step.begin_second) + stall.begin;
      // The timeline ends with the step's schedule; the calls of a stall may end later.
      const double end = static_cast<double>(step.begin_second) + std::ceil(step.seconds);
      spans.push_back({{"from", from},
                       {"to", std::min(from + stall.seconds, end)},
                       {"text", fmt::format("no answer for {:.1f} s", stall.seconds)}});
    }
  }
  return spans;
}

// Goodput over the offered rate, and the peak.
Json Overload(const Results& results) {
  Json points = Json::array();
  for (const Step& step : results.steps) {
    if (step.overload <= 0) continue;
    const Figures figures = FiguresOf(step, 0);
    points.push_back({{"x", figures.intended_per_second},
                      {"y", figures.achieved_per_second},
                      {"started", figures.offered_per_second},
                      {"name", step.name}});
  }
  return {{"points", std::move(points)}, {"peak", results.peak_per_second}};
}

struct Limit {
  std::string name;  // "p99"
  double percentile = 0;
  double milliseconds = 0;
};

// Limits of the run's objective (setting --slo).
std::vector<Limit> LimitsOf(const Results& results) {
  std::vector<Limit> limits;
  const auto setting = results.settings.find("--slo");
  if (setting == results.settings.end()) return limits;
  const absl::StatusOr<Objective> objective = ParseObjective(setting->second);
  if (!objective.ok()) return limits;
  for (const auto& [percentile, microseconds] : objective->limits) {
    limits.push_back(
        {percentile == 100 ? "max" : fmt::format("p{:.10g}", percentile), percentile, InMilliseconds(microseconds)});
  }
  return limits;
}

// One line over the rates for each percentile of the objective, or for p99 if there is no objective.
Json Search(const Results& results) {
  std::vector<const Step*> steps;
  for (const Step& step : results.steps) {
    if (step.measured.latency.Count() > 0) steps.push_back(&step);
  }
  const auto rate = [](const Step* step) {
    return step->rate > 0 ? step->rate : FiguresOf(*step, 0).achieved_per_second;
  };
  std::stable_sort(steps.begin(), steps.end(), [&](const Step* a, const Step* b) { return rate(a) < rate(b); });
  std::vector<Limit> limits = LimitsOf(results);
  if (limits.empty()) limits.push_back({"p99", 99});
  Json lines = Json::array();
  for (const Limit& limit : limits) {
    Json points = Json::array();
    for (const Step* step : steps) {
      // A search judges the service time.
      const Histogram& time = step->tries > 0 ? step->measured.service : step->measured.latency;
      points.push_back(Point(rate(step), InMilliseconds(time.Percentile(limit.percentile))));
      if (step->tries > 0) points.back()["verdict"] = VerdictOf(*step);
    }
    lines.push_back({{"percentile", limit.name}, {"points", std::move(points)}});
    if (limit.milliseconds > 0) lines.back()["objective"] = limit.milliseconds;
  }
  return lines;
}

}  // namespace

std::string PictureData(const Results& results) {
  const Json data = {{"open_loop", IsOpenLoop(results)},       {"seconds", results.timeline.size()},
                     {"warm_up", WarmUp(results.timeline)},    {"steps", StepSpans(results)},
                     {"stalls", StallSpans(results)},          {"distribution", Distribution(results)},
                     {"timeline", Timeline(results.timeline)}, {"search", Search(results)},
                     {"overload", Overload(results)}};
  return InScript(data.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

std::string InScript(const std::string& json) {
  std::string text;
  // Escapes "<", because a text that holds "</script>" would end the enclosing element.
  for (const char c : json) c == '<' ? text.append("\\u003c") : text.append(1, c);
  return text;
}

}  // namespace posenc::load
