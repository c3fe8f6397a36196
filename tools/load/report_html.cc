#include "tools/load/report_html.h"

#include <map>
#include <string_view>

#include <fmt/format.h>

#include "tools/load/figures.h"
#include "tools/load/page.h"
#include "tools/load/report_text.h"

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
      warnings += fmt::format("<details><summary>{} more warnings</summary>\n", results.warnings.size() - kShown);
    }
    warnings += fmt::format("<p class=\"warning\">{}</p>\n", Escaped(results.warnings[i]));
  }
  return results.warnings.size() > kShown ? warnings + "</details>\n" : warnings;
}

std::string Tile(std::string_view figure, std::string_view what) {
  return fmt::format("<div><b>{}</b><span>{}</span></div>\n", Escaped(figure), Escaped(what));
}

std::string Tiles(const Results& results) {
  const Figures figures = FiguresOf(results);
  const auto latency = [&](double percentile) { return Latency(results.total, percentile) + " ms"; };
  std::string tiles;
  if (results.highest_rate) tiles += Tile(Grouped(*results.highest_rate) + "/s", "highest rate that met the objective");
  tiles += Tile(Grouped(figures.achieved_per_second) + "/s",
                IsOpenLoop(results) ? fmt::format("achieved, of {}/s intended", Grouped(figures.intended_per_second))
                                    : std::string("achieved"));
  tiles +=
      Tile(latency(50), "median latency") + Tile(latency(99), "p99 latency") + Tile(latency(99.9), "p99.9 latency");
  tiles += Tile(Percent(figures.error_share), "failed or skipped");
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
  pictures += Picture(
      "distribution", "Latency by percentile",
      "Calls get rarer to the right, on a logarithmic axis. Where latency is above service time, calls started late.",
      results.steps.size() > 1 ? "" : " wide");
  if (results.steps.size() > 1) {
    pictures += Picture(
        "search", "Latency by rate",
        results.steps[0].held ? "Green points met the objective, red ones did not." : "One point per step of the run.");
  }
  if (results.timeline.size() > 1) {
    pictures += Picture("latency", "Latency over time", "By the second of the calls' intended start.");
    pictures +=
        Picture("throughput", "Throughput and failures over time", "By the second of the calls' intended start.");
  }
  return pictures + "</div>\n";
}

std::string Card(std::string_view title, std::string_view body, std::string_view style = "") {
  return fmt::format("<section class=\"card{}\"><h2>{}</h2><div class=\"scroll\">{}</div></section>\n", style, title,
                     body);
}

std::string LatencyTable(const Measurement& measured) {
  const Histogram* const columns[] = {&measured.latency, &measured.service, &measured.server_queue,
                                      &measured.server_compute};
  std::string rows = "<tr><th>ms</th><th>latency</th><th>service</th><th>queue</th><th>compute</th></tr>\n";
  const auto row = [&](std::string_view name, double percentile) {
    rows += fmt::format("<tr><td>{}</td>", name);
    for (const Histogram* column : columns) {
      rows += column->Count() == 0
                  ? "<td>–</td>"
                  : fmt::format("<td>{}</td>", Milliseconds(static_cast<double>(column->Percentile(percentile))));
    }
    rows += "</tr>\n";
  };
  for (const auto& [name, percentile] : kPercentiles) row(name, percentile);
  row("max", 100);
  return "<table>" + rows + "</table>";
}

std::string StepsTable(const Results& results) {
  std::string rows =
      "<tr><th>step</th><th>offered/s</th><th>achieved/s</th><th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th>"
      "<th>failed</th><th></th></tr>\n";
  for (const Step& step : results.steps) {
    const Figures figures = FiguresOf(step, 0);
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", Escaped(step.name),
                        Grouped(figures.offered_per_second), Grouped(figures.achieved_per_second));
    for (const double percentile : {50.0, 99.0, 99.9}) {
      rows += fmt::format("<td>{}</td>", Latency(step.measured, percentile));
    }
    rows += fmt::format("<td>{}</td><td>{}</td></tr>\n", Percent(figures.error_share),
                        !step.held   ? ""
                        : *step.held ? "<span class=\"good\">met</span>"
                                     : "<span class=\"bad\">not met</span>");
  }
  return "<table>" + rows + "</table>";
}

std::string Pair(std::string_view name, std::string_view value) {
  return fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", Escaped(name), Escaped(value));
}

std::string CountsTable(const Results& results) {
  const auto whole = [](int64_t count) { return Grouped(static_cast<double>(count)); };
  const Counts& counts = results.total.counts;
  std::string rows = Pair("intended", whole(counts.intended)) + Pair("succeeded", whole(counts.succeeded));
  for (const auto& [status, count] : results.total.errors) rows += Pair(status, whole(count));
  rows += Pair("answers compared", whole(results.verified)) + Pair("of these, different", whole(results.mismatches));
  rows += Pair("client processors in use", Percent(results.client_cpu_share));
  rows += Pair("p99 start delay", Milliseconds(results.late_starts_p99_us) + " ms");
  std::string table = "<table>" + rows + "</table>";
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
  const std::string subtitle = Escaped(fmt::format("{}, {:.1f} s by {} client{}, server {} ({})", results.begin_time,
                                                   results.seconds, results.clients, results.clients == 1 ? "" : "s",
                                                   results.server_version, results.server_cpu_target));
  std::string tables = "<div class=\"cards\">\n" + Card("Percentiles", LatencyTable(results.total)) +
                       Card("Calls", CountsTable(results)) + "</div>\n<div class=\"cards\">\n";
  if (results.steps.size() > 1) tables += Card("Steps", StepsTable(results), " wide");
  tables += Card("Settings", SettingsTable(results), " wide") + "</div>\n";
  return Fill(kReportHtml, {{"STYLE", kReportCss},
                            {"SUBTITLE", subtitle},
                            {"WARNINGS", Warnings(results)},
                            {"TILES", Tiles(results)},
                            {"CHARTS", Pictures(results)},
                            {"TABLES", tables},
                            {"DATA", PictureData(results)},
                            {"LIBRARY", kChartMinJs},
                            {"SCRIPT", kReportJs}});
}

}  // namespace posenc::load
