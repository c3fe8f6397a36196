#include "server/metrics/state_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace posenc::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  // A family without metrics is left out.
  void Begin(MetricType type, const char* name, const char* help) { families_.push_back({name, help, type, {}}); }
  void Gauge(const char* name, const char* help) { Begin(MetricType::Gauge, name, help); }
  void Counter(const char* name, const char* help) { Begin(MetricType::Counter, name, help); }
  void Gauge(const char* name, const char* help, double value) {
    Gauge(name, help);
    Add(value);
  }
  void Counter(const char* name, const char* help, double value) {
    Counter(name, help);
    Add(value);
  }
  // Adds a metric to the last family.
  template <typename Number>
  void Add(Number value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = metric.counter.value = static_cast<double>(value);
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() {
    std::erase_if(families_, [](const MetricFamily& family) { return family.metric.empty(); });
    return std::move(families_);
  }

 private:
  std::vector<MetricFamily> families_;
};

void AddCalls(const v1::GetServerInfoResponse& state, Families* to) {
  const v1::ServerCounters& now = state.counters();
  to->Gauge("posenc_in_flight_requests", "Calls that are admitted and not ended.",
            static_cast<double>(now.in_flight_requests()));
  to->Gauge("posenc_max_in_flight_requests", "Limit of posenc_in_flight_requests (--max-in-flight-requests).",
            static_cast<double>(state.limits().max_in_flight_requests()));
  to->Gauge("posenc_in_flight_bytes", "Bytes of requests and answers in flight, and of what calls make of requests.",
            static_cast<double>(now.in_flight_bytes()));
  to->Gauge("posenc_max_in_flight_bytes", "Limit of posenc_in_flight_bytes (--max-in-flight-bytes).",
            static_cast<double>(state.limits().max_in_flight_bytes()));
  to->Counter("posenc_refused_requests_total", "Calls refused because of overload, a quota or a drain.",
              static_cast<double>(now.requests_refused()));
}

void AddMemory(const v1::ServerCounters& now, Families* to) {
  const std::pair<const char*, const v1::CacheCounters&> caches[] = {{"plan", now.plan_cache()},
                                                                     {"table", now.table_cache()}};
  to->Counter("posenc_cache_hits_total", "Values found in the cache.");
  for (const auto& [name, cache] : caches) to->Add(cache.hits(), {{"cache", name}});
  to->Counter("posenc_cache_misses_total", "Values that were not in the cache, and computed.");
  for (const auto& [name, cache] : caches) to->Add(cache.misses(), {{"cache", name}});
  to->Gauge("posenc_cache_bytes", "Bytes in the cache.");
  for (const auto& [name, cache] : caches) to->Add(cache.bytes(), {{"cache", name}});
  to->Counter("posenc_answer_buffers_total", "Buffers of answers of 64 KiB and more, by where they came from.");
  to->Add(now.answer_pool().reused(), {{"from", "pool"}});
  to->Add(now.answer_pool().allocated(), {{"from", "system"}});
  to->Gauge("posenc_answer_pool_bytes", "Free bytes in the pool of answers' buffers.",
            static_cast<double>(now.answer_pool().bytes()));
  to->Gauge("posenc_shared_memory_regions", "Registered regions of shared memory.", static_cast<double>(now.regions()));
  to->Gauge("posenc_shared_memory_region_bytes", "Bytes of registered regions of shared memory.",
            static_cast<double>(now.region_bytes()));
}

void AddConnections(const v1::GetServerInfoResponse& state, Families* to) {
  const v1::ServerCounters& now = state.counters();
  to->Gauge("posenc_open_connections", "Open connections.", static_cast<double>(now.open_connections()));
  to->Gauge("posenc_max_connections", "Limit of posenc_open_connections (--max-connections).",
            static_cast<double>(state.limits().max_connections()));
  to->Counter("posenc_refused_connections_total", "Connections closed at once, because of a limit.",
              static_cast<double>(now.refused_connections()));
  to->Counter("posenc_policy_reloads_total", "Changed policy and token files, by whether they were taken.");
  to->Add(now.policy_reloads(), {{"result", "taken"}});
  to->Add(now.policy_failed_reloads(), {{"result", "kept_old"}});
  if (!state.has_tls_certificate()) return;
  const v1::TlsCertificate& certificate = state.tls_certificate();
  to->Gauge("posenc_tls_certificate_expiry_timestamp_seconds",
            "Time at which the certificate in use expires, or an intermediate CA of it.",
            static_cast<double>(certificate.not_after_seconds()));
  to->Counter("posenc_tls_certificate_reloads_total", "Changed certificate files, by whether they were taken.");
  to->Add(certificate.reloads(), {{"result", "taken"}});
  to->Add(certificate.failed_reloads(), {{"result", "kept_old"}});
}

void AddHealth(const v1::GetServerInfoResponse& state, bool serving, Families* to) {
  to->Gauge("posenc_build_info", "Always 1; the labels say what runs.");
  to->Add(1, {{"version", state.version()},
              {"build", state.build()},
              {"numerics_version", std::to_string(state.numerics_version())},
              {"config_rules", state.config_rules()},
              {"cpu_target", state.cpu_target()}});
  to->Gauge("posenc_serving", "1 if the server's health is SERVING, else 0.", serving ? 1 : 0);
  to->Gauge("posenc_stuck_threads", "Threads in one task for longer than --stuck-thread-seconds.",
            static_cast<double>(state.counters().stuck_threads()));
  to->Counter("posenc_log_lines_lost_total", "Lines of the log that were dropped or left out.",
              static_cast<double>(state.counters().log_lines_lost()));
  to->Gauge("posenc_device_withdrawn", "1 if the device is not used until the server restarts, else 0.");
  for (const v1::Device& device : state.devices()) to->Add(!device.withdrawn().empty(), {{"device", device.name()}});
  to->Counter("posenc_device_slabs_total", "Parts of calls offered to a device, by what it did with them.");
  for (const v1::Device& device : state.devices()) {
    if (device.name() == "cpu") continue;
    to->Add(device.slabs_computed(), {{"device", device.name()}, {"result", "computed"}});
    to->Add(device.slabs_declined(), {{"device", device.name()}, {"result", "declined"}});
  }
}

// Seconds since the machine's start at which the process began: field 22 of /proc/self/stat.
double StartOfProcess() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int n = 3; n <= 22; ++n) fields >> field;
  return std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Seconds since 1970 at which the machine started.
double StartOfMachine() {
  std::ifstream file("/proc/stat");
  for (std::string name, rest; file >> name; std::getline(file, rest)) {
    double seconds = 0;
    if (name == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// The names and meanings are those of Prometheus's client libraries.
void AddProcess(Families* to) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  to->Counter("process_cpu_seconds_total", "User and system CPU time.",
              Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  static const double start = StartOfMachine() + StartOfProcess();
  to->Gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", start);
  double pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  to->Gauge("process_virtual_memory_bytes", "Virtual memory.", pages * page);
  to->Gauge("process_resident_memory_bytes", "Resident memory.", resident * page);
  std::error_code error;
  const auto descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd", error), {});
  if (!error) to->Gauge("process_open_fds", "Open file descriptors.", static_cast<double>(descriptors));
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  to->Gauge("process_max_fds", "Limit of open file descriptors.", static_cast<double>(limit.rlim_cur));
}

}  // namespace

std::vector<MetricFamily> StateMetrics::Collect() const {
  v1::GetServerInfoResponse state;
  bool serving = false;
  read_(&state, &serving);
  Families families;
  AddHealth(state, serving, &families);
  AddCalls(state, &families);
  AddConnections(state, &families);
  AddMemory(state.counters(), &families);
  AddProcess(&families);
  return families.Take();
}

}  // namespace posenc::server
