#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "client/load/figures.h"
#include "client/load/report_html.h"

namespace posenc::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 600;  // of a line over time: a screen shows no more

Json Point(double x, double y) { return {{"x", x}, {"y", y}}; }

double InMilliseconds(int64_t microseconds) { return static_cast<double>(microseconds) / 1000; }

// On an axis that grows with 1 / (1 - p), evenly, up to the value of which there is one.
Json DistributionPoints(const Histogram& histogram) {
  Json points = Json::array();
  // Logarithms know no 0.
  const auto add = [&](double x, int64_t value) { points.push_back(Point(x, InMilliseconds(std::max<int64_t>(1, value)))); };
  const auto count = static_cast<double>(histogram.Count());
  for (int i = 0;; ++i) {
    const double x = std::pow(10, i / 12.0);
    if (x >= count) break;
    add(x, histogram.Percentile(100 * (1 - 1 / x)));
  }
  if (count > 0) add(count, histogram.Max());
  return points;
}

Json Distribution(const Measurement& measured) {
  const std::pair<const char*, const Histogram*> lines[] = {{"latency", &measured.latency},
                                                            {"service time", &measured.service},
                                                            {"server: queue", &measured.server_queue},
                                                            {"server: compute", &measured.server_compute}};
  Json distribution = Json::array();
  for (const auto& [name, histogram] : lines) {
    if (histogram->Count() > 0) distribution.push_back({{"name", name}, {"points", DistributionPoints(*histogram)}});
  }
  return distribution;
}

// Lines over time, several seconds to a point where there are many.
Json Timeline(const std::vector<Second>& timeline) {
  Json lines;
  for (const char* name : {"p50", "p99", "max", "intended", "achieved", "errors"}) lines[name] = Json::array();
  const size_t group = (timeline.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < timeline.size(); begin += group) {
    const size_t end = std::min(begin + group, timeline.size());
    Measurement measured;
    double offered = 0;
    for (size_t i = begin; i < end; ++i) {
      measured.Merge(timeline[i].measured);
      offered += timeline[i].offered;
    }
    const auto seconds = static_cast<double>(end - begin), middle = static_cast<double>(begin) + seconds / 2;
    const auto per_second = [&](double calls) { return Point(middle, calls / seconds); };
    // A gap where no call succeeded.
    const auto latency = [&](double percentile) {
      return measured.latency.Count() == 0
                 ? Json{{"x", middle}, {"y", nullptr}}
                 : Point(middle, InMilliseconds(std::max<int64_t>(1, measured.latency.Percentile(percentile))));
    };
    lines["p50"].push_back(latency(50));
    lines["p99"].push_back(latency(99));
    lines["max"].push_back(latency(100));
    lines["intended"].push_back(per_second(offered));
    lines["achieved"].push_back(per_second(static_cast<double>(measured.counts.succeeded)));
    lines["errors"].push_back(per_second(static_cast<double>(measured.counts.failed + measured.counts.skipped)));
  }
  return lines;
}

// Spans of seconds.
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

Json Search(const Results& results) {
  const auto objective = ObjectiveOf(results);
  std::vector<std::pair<double, Json>> points;
  for (const Step& step : results.steps) {
    if (step.measured.latency.Count() == 0) continue;
    const double rate = step.rate > 0 ? step.rate : FiguresOf(step.measured, step.seconds, 0).achieved_per_second;
    const double latency = InMilliseconds(step.measured.latency.Percentile(objective ? objective->percentile : 99));
    Json point = Point(rate, latency);
    if (step.held) point["held"] = *step.held;
    points.emplace_back(rate, std::move(point));
  }
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Json search = {{"percentile", objective ? objective->name : "p99"}, {"points", Json::array()}};
  for (auto& [rate, point] : points) search["points"].push_back(std::move(point));
  if (objective) search["objective"] = objective->microseconds / 1000;
  return search;
}

}  // namespace

std::optional<Objective> ObjectiveOf(const Results& results) {
  for (const char* name : {"slo", "--slo"}) {
    const auto setting = results.settings.find(name);
    if (setting == results.settings.end()) continue;
    const std::string& text = setting->second;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || text[0] != 'p') return std::nullopt;
    Objective objective{.name = text.substr(0, equals)};
    double duration;
    const char* const end = text.data() + text.size();
    const auto percentile = std::from_chars(text.data() + 1, text.data() + equals, objective.percentile);
    const auto [unit, error] = std::from_chars(text.data() + equals + 1, end, duration);
    if (percentile.ptr != text.data() + equals || error != std::errc() || !(duration > 0 && duration < 1e9) ||
        !(objective.percentile > 0 && objective.percentile < 100)) {
      return std::nullopt;
    }
    for (const auto& [suffix, microseconds] : {std::pair{"us", 1.0}, {"ms", 1e3}, {"s", 1e6}}) {
      if (std::string(unit, end) != suffix) continue;
      objective.microseconds = duration * microseconds;
      return objective;
    }
    return std::nullopt;
  }
  return std::nullopt;
}

std::string PictureData(const Results& results) {
  const Json data = {{"open_loop", IsOpenLoop(results)},     {"seconds", results.timeline.size()},
                     {"warm_up", WarmUp(results.timeline)},  {"distribution", Distribution(results.total)},
                     {"timeline", Timeline(results.timeline)}, {"search", Search(results)}};
  std::string text;
  // Else a text that holds "</script>" would end the element that this stands in.
  for (const char c : data.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace)) {
    c == '<' ? text.append("\\u003c") : text.append(1, c);
  }
  return text;
}

}  // namespace posenc::load
