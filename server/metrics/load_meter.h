// How loaded the server is, as a report of ORCA (Open Request Cost Aggregation), by which balancers weigh servers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace posenc::server {

class LoadMeter {
 public:
  // Counters and levels of the server at one moment.
  struct Counts {
    int64_t started = 0, failed = 0;  // calls since the start, and those that failed by the server's fault
    int64_t waiting_tasks = 0;        // in the pool's queue now
    double requests = 0, bytes = 0;   // in flight now, of their limits
  };
  explicit LoadMeter(std::function<Counts()> counts);

  // Rates and processor time are those of a window that ends when somebody calls this a second or more after the last
  // one has ended. Shares in flight are smoothed over some calls. Thread-safe.
  xds::data::orca::v3::OrcaLoadReport Report();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point at;
    std::chrono::nanoseconds cpu;  // time of all threads
    Counts counts;
  };
  static constexpr std::chrono::milliseconds kOld{100}, kWindow{1'000};

  const std::function<Counts()> counts_;
  const double cpus_, memory_bytes_;
  std::mutex mutex_;
  Sample window_;                              // since when the rates of report_ are; guarded by mutex_, as all below
  std::optional<Clock::time_point> reported_;  // when report_ was made
  double requests_ = 0, bytes_ = 0;            // in flight, smoothed
  xds::data::orca::v3::OrcaLoadReport report_;
};

// A call's header that asks for a report, and the trailer that has it: in the binary form "endpoint-load-metrics-bin".
inline constexpr char kLoadFormat[] = "endpoint-load-metrics-format";
struct LoadTrailer {
  std::string name, value;
};
// `format`: "BIN", "JSON" or "TEXT" in any case. nullopt for any other.
std::optional<LoadTrailer> MakeLoadTrailer(std::string_view format, LoadMeter* meter);

}  // namespace posenc::server
