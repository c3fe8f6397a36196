// One request and its answer, from admission to the computed bytes: a unary call, or one message of a stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/service/operations.h"
#include "posenc/wire/rpcs.h"
#include "server/grpc/call.h"
#include "server/grpc/recent_calls.h"
#include "server/grpc/rpc.h"

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

 private:
  absl::Status ServeAtOnce();
  absl::Status RunLimited(std::chrono::milliseconds time, PlanSource plan_source, size_t most);
  absl::Status RunStep(PlanSource plan_source, size_t most);
  bool IsWithin(size_t bytes) const;
  absl::Status Submit(size_t most);
  void Run(size_t most);
  absl::Status Serve(PlanSource plan_source, size_t most);
  absl::Status RunJob(const Prepared& prepared, Call::Writing writing);
  absl::Status Decide(const Prepared& prepared);
  absl::Status Compute(const Prepared& prepared, const wire::Answer& layout, Call::Writing writing);
  absl::StatusOr<std::shared_ptr<const Prepared>> Prepare(PlanSource plan_source, size_t most);

  Core* const core_;
  const UnaryMethod method_;
  Call call_;
  const OnDone on_done_;
  std::shared_ptr<const Prepared> prepared_;
  bool is_slow_ = false;  // the job took, or one like it took, longer than it may where it began
  grpc::ByteBuffer answer_;
};

}  // namespace posenc::server
