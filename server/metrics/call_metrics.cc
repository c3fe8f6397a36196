#include "server/metrics/call_metrics.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "google/protobuf/descriptor.h"

namespace posenc::server {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Labels;

struct CallFamilies {
  Family<Counter>&started, &handled, &received, &sent, &errors, &tensors;
  Family<Histogram>&handling, &queued, &computed;
  std::atomic<int64_t> calls{0}, faults{0};
};

namespace {

// Upper bounds in seconds: from a decode step's time to --max-call-seconds.
const Histogram::BucketBoundaries kSeconds = {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025,
                                              0.05, 0.1,    0.25, 0.5,  1,      2.5,  5,    10,     30,   60};
constexpr char kOther[] = "other";

double Seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// The names that gRPC's specification gives to codes.
const char* NameOfCode(size_t code) {
  static constexpr std::array kNames = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  return kNames[code];
}

// "/package.Service/Method" as the descriptor's name, "package.Service.Method".
const google::protobuf::MethodDescriptor* Find(std::string_view path) {
  std::string name(path.empty() ? path : path.substr(1));
  std::replace(name.begin(), name.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

std::string_view TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) return method.server_streaming() ? "bidi_stream" : "client_stream";
  return method.server_streaming() ? "server_stream" : "unary";
}

Labels LabelsOf(std::string_view path, std::string_view type) {
  const size_t slash = path.rfind('/');
  return {{"grpc_type", std::string(type)},
          {"grpc_service", std::string(path.substr(1, slash - 1))},
          {"grpc_method", std::string(path.substr(slash + 1))}};
}

Labels With(Labels labels, const std::string& name, std::string_view value) {
  labels.emplace(name, value);
  return labels;
}

Family<Counter>& AddCounter(prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

Family<Histogram>& AddHistogram(prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

}  // namespace

MethodMetrics::MethodMetrics(CallFamilies* families, std::string_view path, std::string_view type)
    : families_(families),
      labels_(LabelsOf(path, type)),
      started_(families->started.Add(labels_)),
      received_(families->received.Add(labels_)),
      sent_(families->sent.Add(labels_)) {
  // Counters are present from the start, because a rate does not see the first value of a series.
  for (const char* reason : {"INTERNAL", "OVERLOADED", "DRAINING"}) {
    errors_[reason] = &families_->errors.Add(With(labels_, "reason", reason));
  }
}

void MethodMetrics::AddHistograms() {
  std::call_once(has_histograms_, [this] {
    handling_ = &families_->handling.Add(labels_, kSeconds);
    queued_ = &families_->queued.Add(labels_, kSeconds);
    computed_ = &families_->computed.Add(labels_, kSeconds);
  });
}

void MethodMetrics::Start() {
  AddHistograms();
  started_.Increment();
  families_->calls.fetch_add(1, std::memory_order_relaxed);
}

void MethodMetrics::End(int code, Duration duration) {
  AddHistograms();  // if memory ran out at the start
  handling_->Observe(Seconds(duration));
  const size_t index = code >= 0 && static_cast<size_t>(code) < kCodes ? static_cast<size_t>(code) : 2;  // Unknown
  const std::lock_guard lock(mutex_);
  Counter*& counter = handled_[index];
  if (counter == nullptr) counter = &families_->handled.Add(With(labels_, "grpc_code", NameOfCode(index)));
  counter->Increment();
}

void MethodMetrics::Count(Duration queued, Duration computed, size_t bytes_in, size_t bytes_out) {
  AddHistograms();
  queued_->Observe(Seconds(queued));
  computed_->Observe(Seconds(computed));
  received_.Increment(static_cast<double>(bytes_in));
  sent_.Increment(static_cast<double>(bytes_out));
}

void MethodMetrics::CountError(const std::string& reason) {
  if (reason == "INTERNAL" || reason == "OVERLOADED") families_->faults.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  Counter*& counter = errors_[reason];
  if (counter == nullptr) counter = &families_->errors.Add(With(labels_, "reason", reason));
  counter->Increment();
}

void MethodMetrics::CountTensor(v1::DataType dtype, const std::string& device, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Counter*& counter = tensors_[{dtype, device}];
  if (counter == nullptr) {
    constexpr std::string_view kPrefix = "DATA_TYPE_";
    const std::string_view name = v1::DataType_Name(dtype);
    counter = &families_->tensors.Add(With(With(labels_, "dtype", name.substr(kPrefix.size())), "device", device));
  }
  counter->Increment(static_cast<double>(bytes));
}

CallMetrics::CallMetrics(prometheus::Registry* registry)
    : families_(new CallFamilies{
          .started = AddCounter(registry, "grpc_server_started_total", "Calls that have come."),
          .handled = AddCounter(registry, "grpc_server_handled_total", "Calls that have ended, by their status code."),
          .received = AddCounter(registry, "posenc_received_bytes_total", "Bytes of requests' messages."),
          .sent = AddCounter(registry, "posenc_sent_bytes_total", "Bytes of answers' messages."),
          .errors = AddCounter(registry, "posenc_errors_total",
                               "Calls that ended with an error, by the reason in its details."),
          .tensors = AddCounter(registry, "posenc_tensor_bytes_total",
                                "Bytes of answers' tensors, by their type and by the device that computed them."),
          .handling = AddHistogram(registry, "grpc_server_handling_seconds",
                                   "Time from a call's arrival until its status is given to gRPC."),
          .queued = AddHistogram(registry, "posenc_queue_seconds", "Time that a call waited for a compute thread."),
          .computed = AddHistogram(registry, "posenc_compute_seconds", "Time that a call was parsed and computed.")}) {}

CallMetrics::~CallMetrics() = default;

int64_t CallMetrics::started() const { return families_->calls; }
int64_t CallMetrics::faults() const { return families_->faults; }

MethodMetrics* CallMetrics::Of(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (const auto found = methods_.find(path); found != methods_.end()) return found->second.get();
  const auto* method = Find(path);
  const std::string key = method != nullptr ? path : "/other/other";
  std::unique_ptr<MethodMetrics>& metrics = methods_[key];
  if (metrics == nullptr) {
    metrics = std::make_unique<MethodMetrics>(families_.get(), key, method != nullptr ? TypeOf(*method) : kOther);
  }
  return metrics.get();
}

}  // namespace posenc::server
