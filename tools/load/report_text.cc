#include "tools/load/report_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/files/printable.h"
#include "tools/load/compare.h"
#include "tools/load/figures.h"
#include "tools/load/wording.h"

namespace posenc::load {
namespace {

// Comma-separated counts and statuses, most failures first. Skipped calls have their own line.
std::string Errors(const Measurement& measured) {
  std::vector<std::pair<int64_t, std::string>> errors;
  for (const auto& [status, count] : measured.errors) {
    if (status != "SKIPPED") errors.emplace_back(-count, status);
  }
  std::sort(errors.begin(), errors.end());
  std::string text;
  for (const auto& [count, status] : errors) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Grouped(static_cast<double>(-count)), Printable(status));
  }
  return text;
}

std::string Rates(const Results& results) {
  const Figures figures = FiguresOf(results);
  const Counts& counts = results.total.counts;
  const auto line = [](const char* name, double rate, int64_t count, const char* what) {
    return fmt::format("{:10} {:>12}/s  {} {}\n", name, Grouped(rate), Grouped(static_cast<double>(count)), what);
  };
  std::string text;
  if (IsOpenLoop(results)) text += line("intended", figures.intended_per_second, counts.intended, "scheduled");
  text += line("offered", figures.offered_per_second, counts.intended - counts.skipped, "started");
  text += line("achieved", figures.achieved_per_second, counts.succeeded, "succeeded");
  const std::string errors = Errors(results.total);
  text +=
      fmt::format("{:10} {:>14}{}{}\n", "errors", Percent(figures.failed_share), errors.empty() ? "" : "  ", errors);
  if (counts.skipped > 0) {
    text += fmt::format("{:10} {:>14}  {} not started: too many were in flight (--max-in-flight)\n", "skipped",
                        Percent(figures.skipped_share), Grouped(static_cast<double>(counts.skipped)));
  }
  text += fmt::format("{:10} {:>14}", "data", BytesPerSecond(figures.bytes_per_second));
  if (results.memory_bytes_per_second > 0) {
    text += fmt::format("  {} of this machine's memory bandwidth, {}", Percent(figures.memory_share),
                        BytesPerSecond(results.memory_bytes_per_second));
  }
  return text + "\n";
}

std::string Latencies(const std::string& head, const Measurement& measured) {
  std::string text = fmt::format("{:19}", head);
  for (const auto& [name, percentile] : kPercentiles) text += fmt::format("{:>9}", name);
  text += fmt::format("{:>9}\n", "max");
  for (const auto& [name, histogram] : TimesOf(measured)) {
    if (histogram->Count() == 0) continue;
    text += fmt::format("{:19}", name);
    for (const auto& [unused, percentile] : kPercentiles) text += fmt::format("{:>9}", Time(*histogram, percentile));
    text += fmt::format("{:>9}\n", Time(*histogram, 100));
  }
  return text;
}

std::string Steps(const Results& results) {
  std::string text = fmt::format("{:20}{:>11}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}  {}\n", "step", "offered/s", "achieved/s",
                                 "p50", "p99", "p99.9", "max", "errors", "skipped");
  for (const Step& step : results.steps) {
    const Figures figures = FiguresOf(step, 0);
    text += fmt::format("{:20}{:>11}{:>11}", Printable(step.name), Grouped(figures.offered_per_second),
                        Grouped(figures.achieved_per_second));
    for (const double percentile : {50.0, 99.0, 99.9, 100.0}) {
      text += fmt::format("{:>9}", Time(step.measured.latency, percentile));
    }
    text += fmt::format("{:>9}{:>9}\n", Percent(figures.failed_share), Percent(figures.skipped_share));
  }
  return text;
}

// Rates of a search, as the objective sees them.
std::string Tries(const Results& results) {
  std::string text = fmt::format("{:12}{:>6}{:>12}{:>9}{:>9}{:>9}  {}\n", "rate", "tries", "achieved/s", "p50", "p99",
                                 "p99.9", "service time, ms; share of calls over the limit");
  for (const Step& step : results.steps) {
    text += fmt::format("{:12}{:>6}{:>12}", Printable(step.name), step.tries,
                        Grouped(FiguresOf(step, 0).achieved_per_second));
    for (const double percentile : {50.0, 99.0, 99.9})
      text += fmt::format("{:>9}", Time(step.measured.service, percentile));
    text += fmt::format("  {}: {}\n", VerdictOf(step), Evidence(step));
  }
  return text;
}

std::string GoodputTable(const Results& results) {
  std::string text = fmt::format("\n{:24}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}\n", "offered", "intended/s", "started/s",
                                 "goodput/s", "of the peak", "errors", "skipped");
  for (const Step& step : results.steps) {
    const Figures figures = FiguresOf(step, 0);
    text += fmt::format("{:24}{:>12}{:>12}{:>12}{:>12}{:>9}{:>9}\n", Printable(step.name),
                        step.overload > 0 ? Grouped(figures.intended_per_second) : "",
                        Grouped(figures.offered_per_second), Grouped(figures.achieved_per_second),
                        Percent(figures.achieved_per_second / results.peak_per_second), Percent(figures.failed_share),
                        Percent(figures.skipped_share));
  }
  return text;
}

std::string ComparisonText(const BaselineVerdict& comparison) {
  std::string text = fmt::format("\nBaseline {}, {}: {}", Printable(comparison.baseline),
                                 Printable(comparison.begin_time), VerdictOf(comparison));
  if (!comparison.impossible.empty()) return text + ", because " + Printable(comparison.impossible) + "\n";
  text += fmt::format(" (tolerated: {})\n", Percent(comparison.tolerated));
  for (const ComparedFigure& figure : comparison.figures) {
    text += fmt::format("  {}{}\n", Printable(Describe(figure)), figure.worse ? ": worse" : "");
  }
  return text;
}

}  // namespace

std::string Milliseconds(double microseconds) {
  const double ms = microseconds / 1000;
  return fmt::format("{:.{}f}", ms, ms < 9.9995 ? 3 : ms < 99.995 ? 2 : ms < 999.95 ? 1 : 0);
}

std::string Time(const Histogram& histogram, double percentile) {
  const bool known = percentile == 100 ? histogram.Count() > 0 : IsKnown(histogram, percentile);
  return known ? Milliseconds(static_cast<double>(histogram.Percentile(percentile))) : "-";
}

std::vector<std::pair<const char*, const Histogram*>> TimesOf(const Measurement& measured) {
  std::vector<std::pair<const char*, const Histogram*>> times = {{"latency", &measured.latency}};
  if (measured.late.Max() > 0) times.emplace_back("client: late start", &measured.late);
  times.insert(times.end(), {{"service time", &measured.service},
                             {"client: gRPC wait", &measured.send_wait},
                             {"server: queue", &measured.server_queue},
                             {"server: compute", &measured.server_compute}});
  return times;
}

std::string Grouped(double number) {
  if (number < 99.95 && number != std::floor(number)) return fmt::format("{:.1f}", number);
  std::string text = fmt::format("{:.0f}", number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string BytesPerSecond(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB/s", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.1f} MB/s", bytes / 1e6) : fmt::format("{:.1f} kB/s", bytes / 1e3);
}

std::string Percent(double share) {
  // A nonzero share must not look like 0.
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return fmt::format("{:.{}f} %", 100 * share, share > 0 && share < 0.01 ? 2 : 1);
}

std::string ToText(const Results& results) {
  std::string text;
  for (const std::string& warning : results.warnings) text += fmt::format("Warning: {}\n", Printable(warning));
  if (!text.empty()) text += "\n";
  text += Printable(Title(results)) + "\n";
  for (const std::string& call : Workload(results)) text += "  " + Printable(call) + "\n";
  text += fmt::format("{:.1f} s by {} client{}, server {} ({})\n", results.seconds, results.clients,
                      results.clients == 1 ? "" : "s", Printable(results.server_version),
                      Printable(results.server_cpu_target));
  if (results.stepped()) {
    text += "\n" + Steps(results);
    for (const Step& step : results.steps) text += "\n" + Latencies(Printable(step.name) + ", ms", step.measured);
  } else {
    text += Rates(results) + "\n" + Latencies("milliseconds", results.total);
  }
  text += IsOpenLoop(results)
              ? "Latency counts from a call's intended start, service time from its actual start.\n"
              : "A closed loop waits for its answers: it does not measure how long other callers would have waited.\n";
  if (results.stepped() && results.peak_per_second > 0) text += GoodputTable(results);
  if (results.steps[0].tries > 0) text += "\n" + Tries(results) + "\n";
  for (const std::string& sentence : SearchAnswer(results)) text += Printable(sentence) + "\n";
  if (results.comparison) text += ComparisonText(*results.comparison);
  if (results.verify > 0) {
    text +=
        fmt::format("\n{} answers compared with the client's own results, {} differed\n",
                    Grouped(static_cast<double>(results.verified)), Grouped(static_cast<double>(results.mismatches)));
  }
  if (results.not_verified > 0) {
    text += fmt::format(
        "{} more were selected but not compared: the client could not keep up, or had no shared memory slot for them\n",
        Grouped(static_cast<double>(results.not_verified)));
  }
  if (const auto& first = results.first_mismatch) {
    text += fmt::format("First difference: {}, {}, element {}: expected {}, got {}\n", Printable(first->call),
                        Printable(first->tensor), first->element, Printable(first->expected), Printable(first->got));
  }
  text += fmt::format("\nThe client used {} of its processors; 99 % of its calls started at most {} ms late.\n",
                      Percent(results.client_cpu_share), Milliseconds(results.late_starts_p99_us));
  if (results.noise.longest_us > 0) text += NoiseText(results.noise) + "\n";
  return text;
}

}  // namespace posenc::load
