// One request and its answer, from admission to the computed bytes: a unary call, or one message of a stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/service/operations.h"
#include "posenc/wire/rpcs.h"
#include "server/calls/call.h"
#include "server/calls/recent_calls.h"
#include "server/calls/rpc.h"

namespace posenc::server {

// Says how a request is read and scheduled.
struct UnaryMethod {
  // Prepares the answer: sets response, job and, unless the job decides it, layout. Returns WouldBlock() instead of
  // blocking if the context says so.
  using Prepare = std::function<absl::Status(const wire::CallContext& context)>;
  // Reads a request without its tensors' bytes (Call::Strip): sets `request`, and what Call::Accept() sets. Returns the
  // next step, which may use `call` and `prepared`; WouldBlock() if JSON in the request has more than `most_values`.
  using Read = std::function<absl::StatusOr<Prepare>(const std::string& stripped, int64_t most_values, Call* call,
                                                     Prepared* prepared)>;

  const wire::RpcDescription& rpc;
  wire::Scheduling scheduling;
  Read read;
  // The key of RecentCalls: what the preparation of a request depends on besides it. Null: requests are not kept.
  std::function<std::shared_ptr<const void>(const Rpc& rpc)> key = nullptr;
  // For requests with an id that answers repeat: removes it from a stripped request and returns it, and adds it to an
  // answer. Both or neither; requests that differ in it alone are the same for RecentCalls.
  std::string (*take_id)(std::string* stripped) = nullptr;
  wire::Answer (*with_id)(const wire::Answer& layout, const std::string& id) = nullptr;
};

class UnaryStep {
 public:
  // Called once, at the end. It may destroy the step.
  using OnDone = std::function<void(const absl::Status& status)>;

  UnaryStep(Core* core, UnaryMethod method, Rpc* rpc, grpc::ByteBuffer* request, OnDone on_done)
      : core_(core),
        method_(std::move(method)),
        call_(core, method_.rpc, rpc, request, Call::Kind::kUnary),
        on_done_(std::move(on_done)) {}

  // Serves the request once it is admitted: on a pool thread, or on this thread (see wire::Scheduling).
  void Start();

  Call& call() { return call_; }
  // The answer, if the status was OK.
  grpc::ByteBuffer TakeAnswer();

  // Where a call runs, from quick to slow.
  enum class Place { kReceivingThread, kSmallLane, kBulkLane, kBlockingLane };

 private:
  Place PlaceOf() const;
  size_t MostBytes() const;
  void GoTo(Place place);
  void Run(Place here);
  absl::Status RunLimited();
  absl::Status Serve(Place here);
  absl::Status Read(Place here);
  absl::Status FindRecent(const void* key);
  absl::Status Prepare(Place here);
  absl::Status RunJob(Place here);
  wire::Job::Run MakeQuickRun();
  absl::Status Compute(const wire::Job::Run& run, const wire::Answer& layout);
  absl::Status Decide(const Prepared& prepared);

  bool is_immediate() const { return method_.scheduling == wire::Scheduling::kImmediate; }
  bool is_prepared() const { return prepared_ != nullptr; }
  // True if the step must not keep its thread for long.
  bool is_limited(Place here) const { return here == Place::kReceivingThread && !is_immediate(); }

  Core* const core_;
  const UnaryMethod method_;
  Call call_;
  const OnDone on_done_;
  // These members hold what was made of the request so far. It is charged, and moves with the call to other threads.
  std::optional<std::string> stripped_;
  std::shared_ptr<Prepared> reading_;  // its request is parsed; prepare_ does the rest
  UnaryMethod::Prepare prepare_;
  std::shared_ptr<const Prepared> prepared_;
  bool has_long_json_ = false;
  bool left_ = false;  // the receiving thread
  grpc::ByteBuffer answer_;
};

}  // namespace posenc::server
