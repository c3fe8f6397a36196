#include "tools/load/report_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/load/figures.h"

namespace posenc::load {
namespace {

// Replaces control characters, including C1, by '?': a terminal could take text from files or servers for commands.
std::string Printable(const std::string& text) {
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool two = text[i] == '\xc2' && i + 1 < text.size() && (text[i + 1] & 0x60) == 0;
    const bool control = two || static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f;
    printable += control ? '?' : text[i];
    i += two;
  }
  return printable;
}

// Comma-separated counts and statuses, most failures first.
std::string Errors(const Measurement& measured) {
  std::vector<std::pair<int64_t, std::string>> errors;
  for (const auto& [status, count] : measured.errors) errors.emplace_back(-count, status);
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
  text += fmt::format("{:10} {:>14}{}{}\n", "errors", Percent(figures.error_share), errors.empty() ? "" : "  ", errors);
  text += fmt::format("{:10} {:>14}", "data", BytesPerSecond(figures.bytes_per_second));
  if (results.memory_bytes_per_second > 0) {
    text += fmt::format("  {} of this machine's memory bandwidth, {}", Percent(figures.memory_share),
                        BytesPerSecond(results.memory_bytes_per_second));
  }
  return text + "\n";
}

std::string Latencies(const Measurement& measured) {
  std::string text = fmt::format("{:16}", "milliseconds");
  for (const auto& [name, percentile] : kPercentiles) text += fmt::format("{:>9}", name);
  text += fmt::format("{:>9}\n", "max");
  const std::pair<const char*, const Histogram*> rows[] = {{"latency", &measured.latency},
                                                           {"service time", &measured.service},
                                                           {"server: queue", &measured.server_queue},
                                                           {"server: compute", &measured.server_compute}};
  for (const auto& [name, histogram] : rows) {
    if (histogram->Count() == 0) continue;
    text += fmt::format("{:16}", name);
    for (const auto& [unused, percentile] : kPercentiles) {
      text += fmt::format("{:>9}", Milliseconds(static_cast<double>(histogram->Percentile(percentile))));
    }
    text += fmt::format("{:>9}\n", Milliseconds(static_cast<double>(histogram->Max())));
  }
  return text;
}

std::string Steps(const Results& results) {
  std::string text = fmt::format("{:20}{:>12}{:>12}{:>9}{:>9}{:>9}{:>9}  {}\n", "step", "offered/s", "achieved/s",
                                 "p50", "p99", "p99.9", "max", "errors");
  for (const Step& step : results.steps) {
    const Figures figures = FiguresOf(step, 0);
    text += fmt::format("{:20}{:>12}{:>12}", Printable(step.name), Grouped(figures.offered_per_second),
                        Grouped(figures.achieved_per_second));
    for (const double percentile : {50.0, 99.0, 99.9, 100.0}) {
      text += fmt::format("{:>9}", Latency(step.measured, percentile));
    }
    text += fmt::format("{:>8}{}\n", Percent(figures.error_share),
                        !step.held   ? ""
                        : *step.held ? "  met"
                                     : "  not met");
  }
  return text;
}

}  // namespace

std::string Milliseconds(double microseconds) {
  const double ms = microseconds / 1000;
  return fmt::format("{:.{}f}", ms, ms < 9.9995 ? 3 : ms < 99.995 ? 2 : ms < 999.95 ? 1 : 0);
}

std::string Latency(const Measurement& measured, double percentile) {
  if (measured.latency.Count() == 0) return "-";
  return Milliseconds(static_cast<double>(measured.latency.Percentile(percentile)));
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
  text += fmt::format("{:.1f} s by {} client{}, server {} ({})\n", results.seconds, results.clients,
                      results.clients == 1 ? "" : "s", Printable(results.server_version),
                      Printable(results.server_cpu_target));
  text += Rates(results) + "\n" + Latencies(results.total);
  text += IsOpenLoop(results)
              ? "Latency counts from a call's intended start, service time from its actual start.\n"
              : "A closed loop waits for its answers: it does not measure how long other callers would have waited.\n";
  if (results.steps.size() > 1) text.append("\n").append(Steps(results));
  if (results.highest_rate) {
    text += fmt::format("\nHighest rate that met the objective: {}/s\n", Grouped(*results.highest_rate));
  }
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
  return text;
}

}  // namespace posenc::load
