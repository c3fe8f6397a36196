// Metrics of calls, by method: how many, how long, how many bytes, which errors. The names beginning with grpc_server_
// are those of gRPC's Prometheus interceptors for Go and Java.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "posenc/v1/tensor.pb.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace posenc::server {

struct CallFamilies;

// Metrics of one method. Thread-safe.
class MethodMetrics {
 public:
  using Duration = std::chrono::steady_clock::duration;

  MethodMetrics(CallFamilies* families, std::string_view path, std::string_view type);

  // A call of the method has come. The first one adds the histograms, whose buckets would otherwise be nearly all of an
  // idle server's metrics.
  void Start();
  // The call has ended with this code of gRPC, so long after it came.
  void End(int code, Duration duration);
  // Times that the call's steps waited for a thread and were computed, and the bytes of its messages.
  void Count(Duration queued, Duration computed, size_t bytes_in, size_t bytes_out);
  // The call ended with an error of this reason (proto/posenc/v1/error.proto).
  void CountError(const std::string& reason);
  // An answer had a tensor of this type, computed on this device, e.g. "cpu".
  void CountTensor(v1::DataType dtype, const std::string& device, size_t bytes);

 private:
  static constexpr size_t kCodes = 17;

  void AddHistograms();

  CallFamilies* const families_;
  const prometheus::Labels labels_;
  prometheus::Counter& started_;
  std::once_flag has_histograms_;
  prometheus::Histogram* handling_ = nullptr;
  prometheus::Histogram* queued_ = nullptr;
  prometheus::Histogram* computed_ = nullptr;
  prometheus::Counter& received_;
  prometheus::Counter& sent_;
  std::mutex mutex_;                                       // guards the members below
  std::array<prometheus::Counter*, kCodes> handled_ = {};  // by code; null: none yet
  std::map<std::string, prometheus::Counter*> errors_;
  std::map<std::pair<v1::DataType, std::string>, prometheus::Counter*> tensors_;  // by type and device
};

// Metrics of all methods. Thread-safe.
class CallMetrics {
 public:
  explicit CallMetrics(prometheus::Registry* registry);
  ~CallMetrics();

  // Metrics of the method with this path, "/package.Service/Method". Only methods that this program's protos define
  // have their own; all others share one, so that callers cannot add labels.
  MethodMetrics* Of(const std::string& path);
  // Calls of all methods that have come, and those that have failed by the server's fault: by an error of its own, or
  // because it is overloaded.
  int64_t started() const;
  int64_t faults() const;

 private:
  const std::unique_ptr<CallFamilies> families_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<MethodMetrics>> methods_;  // guarded by mutex_
};

}  // namespace posenc::server
