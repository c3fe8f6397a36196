// What a load test measured: filled while it runs, merged over processes, written as reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/load/histogram.h"

namespace posenc::load {

// Counts of calls. intended = skipped + started; started = succeeded + failed once all have ended.
struct Counts {
  int64_t intended = 0;   // by the schedule; in a closed loop as many as were started
  int64_t skipped = 0;    // not started because too many were in flight: failures
  int64_t succeeded = 0;  // and, where verified, right
  int64_t failed = 0;     // with a status, or a wrong answer
};

// Of the calls whose intended start fell into it.
struct Measurement {
  Counts counts;
  std::map<std::string, int64_t> errors;  // failures by status ("UNAVAILABLE"), "MISMATCH", "SKIPPED"
  int64_t request_bytes = 0;              // of tensors, of calls that succeeded
  int64_t answer_bytes = 0;
  // Microseconds, of calls that succeeded.
  Histogram latency;       // from the intended start
  Histogram service;       // from the actual start
  Histogram server_queue;  // of the server's trailers
  Histogram server_compute;

  void Merge(const Measurement& other);
};

// A second of the run, for figures over time.
struct Second {
  double offered = 0;  // calls in it that the schedule asked this process for; 0 in a closed loop
  bool warm_up = false;
  Measurement measured;
};

// A part of the run with one rate or concurrency: a step, or a try of the search.
struct Step {
  std::string name;        // "1000/s", "concurrency 8"
  double rate = 0;         // intended, calls a second; 0: closed loop
  double concurrency = 0;  // of a closed loop
  double seconds = 0;      // that it took
  // And until the last of its calls that succeeded had: an open loop's calls end after its schedule has.
  double drain_seconds = 0;
  Measurement measured;
  std::optional<bool> held;  // a search's: whether the objective was met
};

// The first answer that differs from the in-process engine's.
struct Mismatch {
  std::string call;    // the mix's name of it
  std::string tensor;  // "q"
  int64_t element = 0;
  std::string expected, got;  // in hexadecimal and as a number
};

struct Results {
  // What was asked, flag by flag, as the command line has it; and the mix, in its file's format.
  std::map<std::string, std::string> settings;
  std::string mix_json;
  std::string server_version, server_cpu_target;
  std::string begin_time;  // ISO 8601, UTC
  double seconds = 0;      // measured, without the warm-up
  double drain_seconds = 0;
  bool interrupted = false;
  int clients = 1;    // processes that were merged
  Measurement total;  // without the warm-up
  std::vector<Second> timeline;
  std::vector<Step> steps;             // one at least
  std::optional<double> highest_rate;  // a search's
  double verify = 0;                   // share of the answers that were to be verified
  int64_t verified = 0, mismatches = 0;
  int64_t not_verified = 0;  // though they were drawn: the client could not keep up
  std::optional<Mismatch> first_mismatch;
  double memory_bytes_per_second = 0;  // this machine's, measured by copying; 0: not measured
  double client_cpu_share = 0;         // of all processors, 0 .. 1
  double late_starts_p99_us = 0;       // how late after their intended start calls were started
  std::vector<std::string> warnings;   // "the client itself was saturated: ..."

  // Of another process that ran at the same time, with a schedule that has the same steps at the same times.
  void Merge(const Results& other);
};

}  // namespace posenc::load
