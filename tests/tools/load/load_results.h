// Results of a search in three steps, for the tests of reports.
#pragma once

#include <cmath>

#include "tools/load/results.h"

namespace posenc::load {

// Calls of about 500 us at a load of 1, with latencies that grow towards 1.5.
inline Measurement MeasurementOf(int64_t calls, double load) {
  Measurement measured;
  measured.counts = {.intended = calls, .skipped = calls / 100, .succeeded = calls - calls / 100 - 2, .failed = 2};
  measured.errors = {{"SKIPPED", calls / 100}, {"UNAVAILABLE", 2}};
  measured.request_bytes = 1024 * measured.counts.succeeded;
  measured.answer_bytes = 2048 * measured.counts.succeeded;
  for (int64_t i = 0; i < measured.counts.succeeded; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(measured.counts.succeeded);
    const auto service = static_cast<int64_t>(300 * load - 80 * std::log(1 - share) / (1.6 - load));
    measured.service.Record(service);
    measured.late.Record(i % 50 == 0 ? static_cast<int64_t>(2000 * load) : 0);
    if (i % 16 == 0) measured.send_wait.Record(100);
    measured.latency.Record(service + (i % 50 == 0 ? static_cast<int64_t>(2000 * load) : 0));
    measured.server_queue.Record(i % 40);
    measured.server_compute.Record(service / 3);
  }
  return measured;
}

inline Results SearchResults() {
  Results results{.settings = {{"--rate", "1000"}, {"--slo", "p99=5ms"}},
                  .mix_json = R"({"calls": [{"method": "ApplyRotary", "seed": 18446744073709551615}]})",
                  .server_version = "0.1.0",
                  .server_cpu_target = "AVX2",
                  .begin_time = "2026-01-02T03:04:05Z",
                  .seconds = 30,
                  .drain_seconds = 0.75,
                  .highest_rate = 1200,
                  .lowest_missed_rate = 1400,
                  .peak_per_second = 3000,
                  .noise = {.share = 0.125, .longest_us = 3500},
                  .verify = 0.01,
                  .verified = 300,
                  .mismatches = 1,
                  .first_mismatch = Mismatch{"decode", "q", 77, "0x3f80 (1)", "0x3f81 (1.0078125)"},
                  .memory_bytes_per_second = 2e9,
                  .client_cpu_share = 0.25,
                  .late_starts_p99_us = 41.5,
                  .warnings = {"the client itself was saturated"}};
  for (const double rate : {800.0, 1200.0, 1400.0}) {
    Step step{.name = std::to_string(static_cast<int>(rate)) + "/s",
              .rate = rate,
              .seconds = 10,
              .drain_seconds = 0.25,
              .begin_second = static_cast<int64_t>(results.timeline.size()),
              .tries = 1,
              .held = rate < 1300,
              .late = {rate < 1300 ? 0.001 : 0.02, rate < 1300 ? 0.004 : 0.2},
              .late_allowed = 0.01};
    for (int second = 0; second < 10; ++second) {
      results.timeline.push_back({.offered = rate, .measured = MeasurementOf(static_cast<int64_t>(rate), rate / 1000)});
      results.timeline.back().completed = results.timeline.back().measured.counts.succeeded;
      step.measured.Merge(results.timeline.back().measured);
    }
    results.total.Merge(step.measured);
    results.steps.push_back(step);
  }
  results.timeline.front().warm_up = true;
  return results;
}

// Returns a run of three steps of the same calls, with a stall in the second step.
inline Results SteppedResults() {
  Results results = SearchResults();
  results.highest_rate.reset();
  results.lowest_missed_rate.reset();
  results.peak_per_second = 0;
  results.settings = {{"--rate", "800,1200,1400"}};
  for (Step& step : results.steps) {
    step.tries = 0;
    step.held.reset();
  }
  results.steps[1].stalls = {{2.5, 1}};
  return results;
}

}  // namespace posenc::load
