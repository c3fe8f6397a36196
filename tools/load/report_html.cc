#include "tools/load/report_html.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/load/compare.h"
#include "tools/load/figures.h"
#include "tools/load/page.h"
#include "tools/load/report_json.h"
#include "tools/load/report_text.h"
#include "tools/load/wording.h"

namespace posenc::load {
namespace {

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\'': escaped += "&#39;"; break;
      case '\0': break;
      default: escaped += c;
    }
  }
  return escaped;
}

// Replaces each @NAME@ in the page with its text.
std::string Fill(std::string_view page, const std::map<std::string_view, std::string_view>& texts) {
  std::string filled;
  while (true) {
    const size_t begin = page.find('@'), end = page.find('@', begin + 1);
    filled += page.substr(0, begin);
    if (begin == std::string_view::npos) return filled;
    filled += texts.at(page.substr(begin + 1, end - begin - 1));
    page.remove_prefix(end + 1);
  }
}

// The first three warnings; a collapsed element counts and holds the others.
std::string Warnings(const Results& results) {
  constexpr size_t kShown = 3;
  std::string warnings;
  for (size_t i = 0; i < results.warnings.size(); ++i) {
    if (i == kShown) {
      const size_t more = results.warnings.size() - kShown;
      warnings += fmt::format("<details><summary>{} more warning{}</summary>\n", more, more == 1 ? "" : "s");
    }
    warnings += fmt::format("<p class=\"warning\">{}</p>\n", Escaped(results.warnings[i]));
  }
  return results.warnings.size() > kShown ? warnings + "</details>\n" : warnings;
}

std::string Tile(std::string_view figure, std::string_view what) {
  return fmt::format("<div><b>{}</b><span>{}</span></div>\n", Escaped(figure), Escaped(what));
}

std::string Tiles(const Results& results) {
  const auto time = [&](double percentile) {
    const std::string ms = Time(results.total.latency, percentile);
    return ms == "-" ? ms : ms + " ms";
  };
  std::string tiles;
  if (results.steps[0].tries > 0) {
    tiles += Tile(results.highest_rate ? Grouped(*results.highest_rate) + "/s" : "none",
                  "highest rate that clearly met the objective");
    if (results.lowest_missed_rate) {
      tiles += Tile(Grouped(*results.lowest_missed_rate) + "/s", "lowest rate that clearly missed it");
    }
  }
  if (results.peak_per_second > 0) tiles += Tile(Grouped(results.peak_per_second) + "/s", "peak of the closed loop");
  if (results.stepped()) {
    double best = 0;
    for (const Step& step : results.steps) best = std::max(best, FiguresOf(step, 0).achieved_per_second);
    tiles += Tile(Grouped(best) + "/s", "achieved in the best step");
    tiles += Tile(Grouped(static_cast<double>(results.total.counts.failed)), "calls failed");
    return tiles + Tile(Grouped(static_cast<double>(results.total.counts.skipped)), "calls skipped");
  }
  const Figures figures = FiguresOf(results);
  tiles += Tile(Grouped(figures.achieved_per_second) + "/s",
                IsOpenLoop(results) ? fmt::format("achieved, of {}/s intended", Grouped(figures.intended_per_second))
                                    : std::string("achieved"));
  tiles += Tile(time(50), "median latency") + Tile(time(99), "p99 latency") + Tile(time(99.9), "p99.9 latency");
  tiles += Tile(Percent(figures.failed_share), "failed") + Tile(Percent(figures.skipped_share), "skipped");
  tiles += Tile(BytesPerSecond(figures.bytes_per_second),
                results.memory_bytes_per_second > 0
                    ? fmt::format("tensor data, {} of memory bandwidth", Percent(figures.memory_share))
                    : std::string("tensor data"));
  return tiles;
}

std::string Picture(std::string_view id, std::string_view title, std::string_view about, std::string_view style = "") {
  return fmt::format(
      "<section class=\"card{3}\"><h2>{1}</h2><p class=\"quiet\">{2}</p>"
      "<div class=\"chart\"><canvas id=\"{0}\" role=\"img\" aria-label=\"{1}\"></canvas></div></section>\n",
      id, title, about, style);
}

std::string Pictures(const Results& results) {
  std::string pictures = "<div class=\"cards\">\n";
  pictures += Picture("distribution", "Latency by percentile",
                      results.stepped() ? "Each step's latency. Calls get rarer to the right, on a logarithmic axis."
                                        : "Calls get rarer to the right, on a logarithmic axis. Where latency is above "
                                          "service time, calls started late.",
                      results.steps.size() > 1 ? "" : " wide");
  if (results.stepped() && results.peak_per_second > 0) {
    pictures += Picture("overload", "Goodput under overload",
                        "Calls per second that succeeded, over the calls per second that were to be made.");
  } else if (results.steps.size() > 1) {
    pictures += Picture(
        "search", "Latency by rate",
        results.steps[0].tries > 0
            ? "Service time. Green points clearly met the objective, red ones clearly missed it, grey ones are unclear."
            : "One point per step of the run.");
  }
  if (results.timeline.size() > 1) {
    pictures += Picture("latency", "Latency over time", "By the second of the calls' intended start.");
    pictures += Picture(
        "throughput", "Starts and completions over time",
        "Started calls count in the second of their intended start, completed ones in the second of their end.");
  }
  return pictures + "</div>\n";
}

std::string Card(std::string_view title, std::string_view body, std::string_view style = "") {
  return fmt::format("<section class=\"card{}\"><h2>{}</h2>{}</section>\n", style, title, body);
}

// A table whose rows become blocks of labelled cells where the screen is narrow. The cells are HTML.
std::string Table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows) {
  std::string table = "<table class=\"stack\"><thead><tr>";
  for (const std::string& head : heads) table += fmt::format("<th>{}</th>", head);
  table += "</tr></thead>\n";
  for (const std::vector<std::string>& row : rows) {
    table += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) table += fmt::format("<td data-head=\"{}\">{}</td>", heads[i], row[i]);
    table += "</tr>\n";
  }
  return table + "</table>";
}

std::string Dashed(const std::string& text) { return text == "-" ? "–" : text; }

std::string LatencyTable(const Measurement& measured) {
  std::vector<std::string> heads = {"milliseconds"};
  for (const auto& [name, percentile] : kPercentiles) heads.emplace_back(name);
  heads.emplace_back("max");
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, histogram] : TimesOf(measured)) {
    rows.push_back({name});
    for (const auto& [unused, percentile] : kPercentiles) rows.back().push_back(Dashed(Time(*histogram, percentile)));
    rows.back().push_back(Dashed(Time(*histogram, 100)));
  }
  return Table(heads, rows);
}

std::string LatencyTables(const Results& results) {
  if (!results.stepped()) return LatencyTable(results.total);
  std::string tables;
  for (const Step& step : results.steps) {
    tables += fmt::format("<h3>{}</h3>{}\n", Escaped(step.name), LatencyTable(step.measured));
  }
  return tables;
}

std::string StepsTable(const Results& results) {
  std::vector<std::vector<std::string>> rows;
  for (const Step& step : results.steps) {
    const Figures figures = FiguresOf(step, 0);
    const Histogram& latency = step.measured.latency;
    rows.push_back({Escaped(step.name), Grouped(figures.offered_per_second), Grouped(figures.achieved_per_second)});
    if (results.peak_per_second > 0) {
      rows.back().push_back(Percent(figures.achieved_per_second / results.peak_per_second));
    }
    for (const double percentile : {50.0, 99.0, 99.9, 100.0}) rows.back().push_back(Dashed(Time(latency, percentile)));
    rows.back().push_back(Percent(figures.failed_share));
    rows.back().push_back(Percent(figures.skipped_share));
  }
  std::vector<std::string> heads = {"step", "started/s", "succeeded/s"};
  if (results.peak_per_second > 0) heads.emplace_back("of the peak");
  for (const char* head : {"p50 ms", "p99 ms", "p99.9 ms", "max ms", "failed", "skipped"}) heads.emplace_back(head);
  return Table(heads, rows);
}

// Rates of a search.
std::string TriesTable(const Results& results) {
  std::vector<std::vector<std::string>> rows;
  for (const Step& step : results.steps) {
    const std::string verdict = VerdictOf(step);
    rows.push_back({Escaped(step.name), std::to_string(step.tries),
                    fmt::format("<span class=\"{}\">{}</span>",
                                verdict == "met"       ? "good"
                                : verdict == "not met" ? "bad"
                                                       : "quiet",
                                verdict),
                    Evidence(step), Grouped(FiguresOf(step, 0).achieved_per_second)});
    for (const double percentile : {50.0, 99.0, 99.9}) {
      rows.back().push_back(Dashed(Time(step.measured.service, percentile)));
    }
  }
  std::string text = Table({"rate", "tries", "verdict", "99 % interval of the calls over the limit", "succeeded/s",
                            "p50 ms", "p99 ms", "p99.9 ms"},
                           rows);
  for (const std::string& sentence : SearchAnswer(results)) text += fmt::format("<p>{}</p>", Escaped(sentence));
  return text;
}

std::string ComparisonCard(const Results& results) {
  if (!results.comparison) return "";
  const BaselineVerdict& comparison = *results.comparison;
  const bool good = std::string_view(VerdictOf(comparison)) == "no worse";
  std::string text =
      fmt::format("<p>{}, {}: <b class=\"{}\">{}</b>{} (tolerated: {})</p>", Escaped(comparison.baseline),
                  Escaped(comparison.begin_time), good ? "good" : "bad", VerdictOf(comparison),
                  comparison.impossible.empty() ? "" : ", because " + Escaped(comparison.impossible),
                  Percent(comparison.tolerated));
  std::vector<std::vector<std::string>> rows;
  for (const ComparedFigure& figure : comparison.figures) {
    rows.push_back({Escaped(figure.step.empty() ? figure.figure : figure.step + ": " + figure.figure),
                    fmt::format("{:.4g}", figure.before), fmt::format("{:.4g}", figure.after),
                    figure.worse ? "<span class=\"bad\">worse</span>" : "<span class=\"good\">no worse</span>"});
  }
  if (!rows.empty()) text += Table({"figure", "baseline", "this run", "verdict"}, rows);
  return Card("Compared with the baseline", text, " wide");
}

std::string Pair(std::string_view name, std::string_view value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", Escaped(name), Escaped(value));
}

std::string CountsTable(const Results& results) {
  const auto whole = [](int64_t count) { return Grouped(static_cast<double>(count)); };
  const Counts& counts = results.total.counts;
  std::string rows = Pair("intended", whole(counts.intended)) + Pair("succeeded", whole(counts.succeeded));
  rows += Pair("skipped", whole(counts.skipped)) + Pair("failed", whole(counts.failed));
  for (const auto& [status, count] : results.total.errors) {
    if (status != "SKIPPED") rows += Pair("failed with " + status, whole(count));
  }
  rows += Pair("answers compared", whole(results.verified)) + Pair("of these, different", whole(results.mismatches));
  rows += Pair("client processors in use", Percent(results.client_cpu_share));
  rows += Pair("p99 start delay", Milliseconds(results.late_starts_p99_us) + " ms");
  if (results.noise.longest_us > 0) {
    rows += Pair("processors taken by others before the run", Percent(results.noise.share));
    rows += Pair("for at most", Milliseconds(results.noise.longest_us) + " ms");
  }
  std::string table = "<table class=\"counts\">" + rows + "</table>";
  if (const auto& first = results.first_mismatch) {
    table += fmt::format("<p class=\"bad\">First difference: {}, {}, element {}: expected {}, got {}</p>",
                         Escaped(first->call), Escaped(first->tensor), first->element, Escaped(first->expected),
                         Escaped(first->got));
  }
  return table;
}

std::string SettingsTable(const Results& results) {
  std::string rows;
  for (const auto& [name, value] : results.settings) rows += Pair(name, value);
  return fmt::format("<table class=\"pairs\">{}</table><details><summary>Mix of calls</summary><pre>{}</pre></details>",
                     rows, Escaped(results.mix_json));
}

}  // namespace

std::string ToHtml(const Results& results) {
  std::string workload;
  for (const std::string& call : Workload(results)) workload += fmt::format("<p>{}</p>\n", Escaped(call));
  const std::string title = Escaped(Title(results));
  const std::string subtitle = Escaped(fmt::format("{}, {:.1f} s by {} client{}, server {} ({})", results.begin_time,
                                                   results.seconds, results.clients, results.clients == 1 ? "" : "s",
                                                   results.server_version, results.server_cpu_target));
  std::string tables = "<div class=\"cards\">\n" + ComparisonCard(results);
  if (results.steps[0].tries > 0) tables += Card("Tried rates", TriesTable(results), " wide");
  if (results.stepped()) tables += Card("Steps", StepsTable(results), " wide");
  tables += Card(results.stepped() ? "Percentiles by step" : "Percentiles", LatencyTables(results), " wide");
  tables += Card("Calls", CountsTable(results)) + Card("Settings", SettingsTable(results)) + "</div>\n";
  return Fill(kReportHtml, {{"STYLE", kReportCss},
                            {"TITLE", title},
                            {"WORKLOAD", workload},
                            {"SUBTITLE", subtitle},
                            {"WARNINGS", Warnings(results)},
                            {"TILES", Tiles(results)},
                            {"CHARTS", Pictures(results)},
                            {"TABLES", tables},
                            {"DATA", PictureData(results)},
                            {"RESULTS", InScript(ToJson(results))},
                            {"LIBRARY", kChartMinJs},
                            {"SCRIPT", kReportJs}});
}

}  // namespace posenc::load
