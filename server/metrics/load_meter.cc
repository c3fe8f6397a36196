#include "server/metrics/load_meter.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "posenc/base/cgroup.h"

namespace posenc::server {
namespace {

using xds::data::orca::v3::OrcaLoadReport;

std::chrono::nanoseconds ProcessTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// "cpu_utilization=0.5, named_metrics.waiting_tasks=3": maps are in the order of their keys.
std::string TextOf(const OrcaLoadReport& report) {
  std::string text =
      absl::StrCat("cpu_utilization=", report.cpu_utilization(), ", mem_utilization=", report.mem_utilization(),
                   ", application_utilization=", report.application_utilization(),
                   ", rps_fractional=", report.rps_fractional(), ", eps=", report.eps());
  const std::map<std::string, double> utilization(report.utilization().begin(), report.utilization().end());
  const std::map<std::string, double> named(report.named_metrics().begin(), report.named_metrics().end());
  for (const auto& [name, value] : utilization) absl::StrAppend(&text, ", utilization.", name, "=", value);
  for (const auto& [name, value] : named) absl::StrAppend(&text, ", named_metrics.", name, "=", value);
  return text;
}

std::string JsonOf(const OrcaLoadReport& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(report, &json, options);
  return json;
}

}  // namespace

LoadMeter::LoadMeter(std::function<Counts()> counts)
    : counts_(std::move(counts)),
      cpus_(CgroupCpuQuota().value_or(AvailableCpus())),
      memory_bytes_(static_cast<double>(AvailableMemory())),
      window_{Clock::now(), ProcessTime(), counts_()} {}

OrcaLoadReport LoadMeter::Report() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point at = Clock::now();
  if (reported_ && at - *reported_ < kOld) return report_;
  const double weight = reported_ ? 0.3 : 1;  // of the newest shares
  reported_ = at;
  const Sample now = {at, ProcessTime(), counts_()};
  if (const double resident = ResidentBytes(); resident > 0 && memory_bytes_ > 0) {
    report_.set_mem_utilization(std::min(resident / memory_bytes_, 1.0));
  }
  if (const auto time = at - window_.at; time >= kWindow) {
    const double seconds = std::chrono::duration<double>(time).count();
    report_.set_cpu_utilization(std::chrono::duration<double>(now.cpu - window_.cpu).count() / seconds / cpus_);
    report_.set_rps_fractional(static_cast<double>(now.counts.started - window_.counts.started) / seconds);
    report_.set_eps(static_cast<double>(now.counts.failed - window_.counts.failed) / seconds);
    window_ = now;
  }
  requests_ += weight * (now.counts.requests - requests_);
  bytes_ += weight * (now.counts.bytes - bytes_);
  (*report_.mutable_utilization())["in_flight_requests"] = std::min(requests_, 1.0);
  (*report_.mutable_utilization())["in_flight_bytes"] = std::min(bytes_, 1.0);
  (*report_.mutable_named_metrics())["waiting_tasks"] = static_cast<double>(now.counts.waiting_tasks);
  // Balancers weigh by this alone if it is set: so it is the scarcest of all.
  report_.set_application_utilization(std::max({report_.cpu_utilization(), requests_, bytes_}));
  return report_;
}

std::optional<LoadTrailer> MakeLoadTrailer(std::string_view format, LoadMeter* meter) {
  const std::string form = absl::AsciiStrToUpper(std::string(format));
  if (form == "BIN") return LoadTrailer{"endpoint-load-metrics-bin", meter->Report().SerializeAsString()};
  if (form == "JSON") return LoadTrailer{"endpoint-load-metrics", "JSON " + JsonOf(meter->Report())};
  if (form == "TEXT") return LoadTrailer{"endpoint-load-metrics", "TEXT " + TextOf(meter->Report())};
  return std::nullopt;
}

}  // namespace posenc::server
