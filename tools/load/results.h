// Results of a load test: filled while it runs, merged over processes, written as reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/load/histogram.h"

namespace posenc::load {

// Counts of calls. intended = skipped + started; started = succeeded + failed once all have ended.
struct Counts {
  int64_t intended = 0;   // calls of the schedule; in a closed loop, calls that were started
  int64_t skipped = 0;    // not started because too many were in flight; counted as failures
  int64_t succeeded = 0;  // status OK, a whole answer, and the right one if verified
  int64_t failed = 0;     // error status, or a short or wrong answer
};

// Measurement of the calls whose intended start was in one span of time.
struct Measurement {
  Counts counts;
  std::map<std::string, int64_t> errors;  // failures by status ("UNAVAILABLE") or other cause ("MISMATCH")
  int64_t request_bytes = 0;              // tensor bytes of successful calls
  int64_t answer_bytes = 0;
  // Microseconds; successful calls only.
  Histogram latency;       // from the intended start
  Histogram late;          // of that: until the actual start, which only the client delays
  Histogram service;       // from the actual start
  Histogram send_wait;     // of that: until the client's own gRPC had sent the call's headers; one call of 16
  Histogram server_queue;  // from the server's trailers
  Histogram server_compute;

  void Merge(const Measurement& other);
};

// One second of the run, for figures over time.
struct Second {
  double offered = 0;  // calls in this process's schedule; 0 in a closed loop
  bool warm_up = false;
  int64_t completed = 0;  // successful calls whose end was in this second and before the end of the step's last one
  Measurement measured;
};

inline constexpr double kLeastStall = 0.2;  // seconds; shorter waits are no stall

// A span of time in which calls waited and none was answered.
struct Stall {
  double begin = 0;  // seconds since the step's beginning
  double seconds = 0;
};

// Confidence interval of a share, 0 .. 1.
struct Interval {
  double low = 0, high = 1;
};

// A part of the run with one rate or concurrency: a step, or a try of the search.
struct Step {
  std::string name;        // "1000/s", "concurrency 8"
  double rate = 0;         // intended calls per second; 0 in a closed loop
  double concurrency = 0;  // calls in flight in a closed loop
  double seconds = 0;      // duration of the step
  // Time after `seconds` until the last successful call ended: an open loop's calls end after its schedule.
  double drain_seconds = 0;
  Measurement measured;
  int64_t begin_second = 0;  // index of its first second in the timeline
  std::vector<Stall> stalls;
  double overload = 0;  // offered rate / peak; 0 if the run does not measure overload

  // Searches only. `held` is absent if even the last try left open whether the objective is met.
  int64_t tries = 0;  // merged into this step; 0 if the run is no search
  std::optional<bool> held;
  Interval late;            // 99 % interval of the share of calls over the limit that decided, or was nearest
  double late_allowed = 0;  // share that the limit allows
};

// The first answer that differs from the in-process engine's.
struct Mismatch {
  std::string call;    // name of the mix entry
  std::string tensor;  // "q"
  int64_t element = 0;
  std::string expected, got;  // in hexadecimal and as a number
};

// How much of the processors a client that always computes did not get, measured before the run.
struct Noise {
  double share = 0;       // taken by others, 0 .. 1
  double longest_us = 0;  // longest time for which a thread had to wait
};

// A figure of this run and of the baseline.
struct ComparedFigure {
  std::string step;    // empty: of the whole run
  std::string figure;  // "p99 latency, ms"
  double before = 0, after = 0;
  bool worse = false;  // by more than the tolerated share
};

// The baseline's verdict.
struct BaselineVerdict {
  std::string baseline;    // the file
  std::string begin_time;  // of the baseline
  double tolerated = 0;    // share by which a figure may be worse
  std::string impossible;  // why the runs cannot be compared; empty if they can
  std::vector<ComparedFigure> figures;

  bool worse() const;
};

struct Results {
  // Command-line flags and their values, and the mix in its file format.
  std::map<std::string, std::string> settings;
  std::string mix_json;
  std::string server_version, server_cpu_target;
  std::string begin_time;  // ISO 8601, UTC
  double seconds = 0;      // measured, without the warm-up
  double drain_seconds = 0;
  bool interrupted = false;
  int clients = 1;    // merged client processes
  Measurement total;  // without the warm-up
  std::vector<Second> timeline;
  std::vector<Step> steps;  // at least one
  // Searches only: the highest rate that met the objective, and the lowest above it that missed it.
  std::optional<double> highest_rate, lowest_missed_rate;
  double peak_per_second = 0;  // of a closed loop, measured by searches and overload tests; otherwise 0
  Noise noise;
  std::optional<BaselineVerdict> comparison;
  double verify = 0;  // share of answers to verify, 0 .. 1
  int64_t verified = 0, mismatches = 0;
  int64_t not_verified = 0;  // drawn for verification, but the client could not keep up
  std::optional<Mismatch> first_mismatch;
  double memory_bytes_per_second = 0;  // measured on this machine by copying; 0 if not measured
  double client_cpu_share = 0;         // share of all processors, 0 .. 1
  double late_starts_p99_us = 0;       // delay from intended to actual start
  std::vector<std::string> warnings;   // "the client itself was saturated: ..."

  // True if the figures of all calls together describe no load that any of them met: several steps, and no search.
  bool stepped() const { return steps.size() > 1 && steps[0].tries == 0; }

  // Merges the results of another process that ran at the same time, whose schedule has the same steps at the same
  // times.
  void Merge(const Results& other);
};

// Returns INVALID_ARGUMENT if `other` did not run at the same time as `one`, for the most part of the shorter run.
absl::Status CheckSameTime(const Results& one, const Results& other);

}  // namespace posenc::load
