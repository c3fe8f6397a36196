#include "tools/load/figures.h"

#include <algorithm>

namespace posenc::load {

bool IsKnown(const Histogram& histogram, double percentile) {
  constexpr double kRounding = 1e-6;  // of 100 - 99.99
  return static_cast<double>(histogram.Count()) * (100 - percentile) >= 100 - kRounding;
}

Figures FiguresOf(const Measurement& measured, double seconds, double drain_seconds, double memory_bytes_per_second) {
  const Counts& counts = measured.counts;
  const auto per = [](auto amount, auto whole) {
    return whole > 0 ? static_cast<double>(amount) / static_cast<double>(whole) : 0.0;
  };
  Figures figures{.intended_per_second = per(counts.intended, seconds),
                  .offered_per_second = per(counts.intended - counts.skipped, seconds),
                  .achieved_per_second = per(counts.succeeded, seconds + drain_seconds),
                  .error_share = per(counts.skipped + counts.failed, counts.intended),
                  .failed_share = per(counts.failed, counts.intended),
                  .skipped_share = per(counts.skipped, counts.intended),
                  .bytes_per_second = per(measured.request_bytes + measured.answer_bytes, seconds + drain_seconds)};
  figures.memory_share = per(figures.bytes_per_second, memory_bytes_per_second);
  return figures;
}

Figures FiguresOf(const Results& results) {
  return FiguresOf(results.total, results.seconds, results.drain_seconds, results.memory_bytes_per_second);
}

Figures FiguresOf(const Step& step, double memory_bytes_per_second) {
  return FiguresOf(step.measured, step.seconds, step.drain_seconds, memory_bytes_per_second);
}

bool IsOpenLoop(const Results& results) {
  return std::any_of(results.steps.begin(), results.steps.end(), [](const Step& step) { return step.rate > 0; });
}

}  // namespace posenc::load
