// Derived figures of a measurement for reports: rates, shares and percentiles.
#pragma once

#include <array>

#include "tools/load/results.h"

namespace posenc::load {

// Percentiles that every report shows, with their names, in addition to the maximum.
struct NamedPercentile {
  const char* name;
  double percentile;
};
inline constexpr std::array<NamedPercentile, 7> kPercentiles = {
    {{"p50", 50}, {"p75", 75}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}}};

// True if at least one call stands beyond the percentile: 10,000 calls for p99.99.
bool IsKnown(const Histogram& histogram, double percentile);

// Rates are 0 if no time passed. Shares are 0 if their denominator is 0.
struct Figures {
  double intended_per_second = 0;  // calls that the schedule asked for
  double offered_per_second = 0;   // calls that were started
  double achieved_per_second = 0;  // calls that succeeded
  double error_share = 0;          // (failed + skipped) / intended calls
  double failed_share = 0, skipped_share = 0;
  double bytes_per_second = 0;  // tensor bytes of requests and answers, successful calls only
  double memory_share = 0;      // bytes_per_second / the machine's memory bandwidth
};

// `seconds`: span in which calls were to start. `drain_seconds`: time after it until the last successful call ended.
// Successful calls and bytes are divided by the sum of both.
Figures FiguresOf(const Measurement& measured, double seconds, double drain_seconds, double memory_bytes_per_second);
Figures FiguresOf(const Results& results);
Figures FiguresOf(const Step& step, double memory_bytes_per_second);

// True if a schedule determined when calls were to start.
bool IsOpenLoop(const Results& results);

}  // namespace posenc::load
