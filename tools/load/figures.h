// What reports say of a measurement besides what was counted.
#pragma once

#include <array>

#include "tools/load/results.h"

namespace posenc::load {

// The percentiles of every report, and what they are called. The maximum stands beside them.
struct NamedPercentile {
  const char* name;
  double percentile;
};
inline constexpr std::array<NamedPercentile, 7> kPercentiles = {
    {{"p50", 50}, {"p75", 75}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}}};

// Rates are 0 where no time passed, shares where there is nothing that they are of.
struct Figures {
  double intended_per_second = 0;  // calls that the schedule asked for
  double offered_per_second = 0;   // calls that were started
  double achieved_per_second = 0;  // calls that succeeded
  double error_share = 0;          // of intended calls: those that failed or were skipped
  double bytes_per_second = 0;     // of tensors, requests' and answers' together, of calls that succeeded
  double memory_share = 0;         // bytes_per_second of the machine's memory bandwidth
};

// Calls were to start within `seconds`, and the last that succeeded had after `drain_seconds` more: what succeeded did
// so in the two together.
Figures FiguresOf(const Measurement& measured, double seconds, double drain_seconds, double memory_bytes_per_second);
Figures FiguresOf(const Results& results);
Figures FiguresOf(const Step& step, double memory_bytes_per_second);

// Whether a schedule said when calls were to start.
bool IsOpenLoop(const Results& results);

}  // namespace posenc::load
