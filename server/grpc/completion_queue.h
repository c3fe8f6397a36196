// Adapter to gRPC's asynchronous API: our own threads take events from the completion queue and call reactors.
//
// gRPC's callback API would do so on its own threads, at least two. A thread that has taken an event first wakes
// another one to wait in its place: with few processors that costs more than most calls (ADR 41).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_builder.h"
#include "posenc/base/busy_threads.h"
#include "server/access/access.h"
#include "server/calls/methods.h"
#include "server/calls/rpc.h"
#include "server/core/fair_limit.h"
#include "server/core/timers.h"
#include "server/listen/peer.h"
#include "server/metrics/call_metrics.h"
#include "server/trace/tracer.h"

namespace posenc::server {

// Limit of calls that are not admitted yet, because their first message has not come, or ever, because their method
// admits none: gRPC keeps some 25 KiB for each.
struct UnadmittedCalls {
  std::shared_ptr<FairLimit> limit;
  // Makes the status of a call that is one too many; may add trailers. Thread-safe.
  std::function<grpc::Status(Rpc*)> refuse;
};

class GrpcRpc;

class CompletionQueueLoop {
 public:
  // Adds a completion queue and a generic service to the server that `builder` makes.
  explicit CompletionQueueLoop(grpc::ServerBuilder* builder);
  // After Start(), destroy it only once the server's Shutdown() has returned. Waits until all reactors are deleted.
  ~CompletionQueueLoop();

  struct Options {
    size_t threads = 1;
    // Records since when each of them is in one event. Not null.
    BusyThreads* busy = nullptr;
    // A call whose method reads a message first is cancelled if the message does not arrive in this time.
    std::chrono::seconds receive_timeout{0};
    UnadmittedCalls unadmitted;
    // Is asked before anything of a call is read; null: everybody may call.
    Authorize authorize;
    Tracer* tracer = nullptr;        // null: nothing is traced
    bool has_trusted_proxy = false;  // some connections are of --trusted-proxy
  };
  // Serves the methods. Call it once the server runs. Calls of other methods end with UNIMPLEMENTED. Every call is
  // counted in `metrics`. `timers` and `metrics` must outlive this object.
  void Start(Methods methods, Options options, Timers* timers, CallMetrics* metrics);
  // The connections over which a request is in progress (Rpc::BeginRequest), or, with `with_uploads`, a first message
  // is awaited. Thread-safe.
  std::set<TcpEnd> BusyConnections(bool with_uploads);

 private:
  friend class GrpcRpc;
  void Poll(size_t thread);
  void AddOpen(GrpcRpc* rpc);
  void RemoveOpen(std::list<GrpcRpc*>::iterator rpc);

  Methods methods_;
  MethodMetrics* metrics_of_unknown_ = nullptr;
  Timers* timers_ = nullptr;
  Options options_;
  std::mutex open_mutex_;
  std::list<GrpcRpc*> open_;  // RPCs that have arrived; guarded by open_mutex_
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::atomic<int64_t> rpcs_{0};  // waiting for a client, or being served
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server
