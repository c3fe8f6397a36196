// Adapter to gRPC's asynchronous API: our own threads take events from the completion queue and call reactors.
//
// gRPC's callback API would do so on its own threads, at least two. A thread that has taken an event first wakes
// another one to wait in its place: with few processors that costs more than most calls (ADR 13).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_builder.h"
#include "posenc/base/busy_threads.h"
#include "server/access/access.h"
#include "server/core/timers.h"
#include "server/grpc/methods.h"
#include "server/grpc/rpc.h"
#include "server/listen/peer.h"
#include "server/metrics/call_metrics.h"

namespace posenc::server {

// Decides who may call. Returns the caller's identity, or the status of the refusal; may add trailers. The RPC is null
// for a further message of a stream. Thread-safe.
using Authorize = std::function<absl::StatusOr<std::shared_ptr<const Identity>>(const CallerCredentials&, Right right,
                                                                                const std::string& method, Rpc*)>;

// Limit of calls that are not admitted, because their first message has not come or their method does not admit any:
// gRPC keeps some 25 KiB for each.
struct UnadmittedCalls {
  size_t most = 0;
  // Makes the status of a call without a message that is ended because there are more; may add trailers. Thread-safe.
  std::function<grpc::Status(Rpc*)> refuse;
};

class GrpcRpc;

// Calls of a peer that are not admitted.
struct UnadmittedOfPeer {
  std::unordered_map<uint64_t, std::list<GrpcRpc*>> of_connections;  // by Rpc::connection_number(); oldest first
  size_t count = 0;                                                  // of all these
};

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
    // If there are more of them, the oldest of the peer with the most is ended.
    UnadmittedCalls unadmitted;
    // Is asked before anything of a call is read; null: everybody may call.
    Authorize authorize;
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
  // Adds an RPC that is not admitted. May end another one, or this one: then returns false.
  bool AddUnadmitted(GrpcRpc* rpc);
  // Notes that the RPC's first message has come, which its reactor may admit. Returns false if it was noted before, or
  // if the RPC was ended to make room.
  bool Hear(GrpcRpc* rpc);
  // Does nothing the second time.
  void RemoveUnadmitted(GrpcRpc* rpc);
  // Require unadmitted_mutex_:
  void SortByPeer();          // moves unadmitted_ into unadmitted_of_peer_
  GrpcRpc* OneTooMany();      // of those in unadmitted_of_peer_
  void Forget(GrpcRpc* rpc);  // requires that the RPC is in one of them

  Methods methods_;
  MethodMetrics* metrics_of_unknown_ = nullptr;
  Timers* timers_ = nullptr;
  Options options_;
  std::mutex open_mutex_;
  std::list<GrpcRpc*> open_;  // RPCs that have arrived; guarded by open_mutex_
  std::mutex unadmitted_mutex_;
  // RPCs that are not admitted, oldest first; guarded by unadmitted_mutex_. Most are here for microseconds: a peer is
  // looked up, which takes longer, only when there are too many.
  std::list<GrpcRpc*> unadmitted_;
  std::map<Peer, UnadmittedOfPeer> unadmitted_of_peer_;
  size_t unadmitted_count_ = 0;     // in both
  uint64_t unadmitted_number_ = 0;  // of the last RPC in unadmitted_
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::atomic<int64_t> rpcs_{0};        // waiting for a client, or being served
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server
