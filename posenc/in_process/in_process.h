// The service without a server: computes in the calling thread and a thread pool.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "posenc/backend/backend.h"
#include "posenc/base/fork.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"

namespace posenc {

struct InProcessOptions {
  Limits limits;
  // Number of computing threads, including the caller's; 0: as many as the cgroup's quota and the affinity mask allow.
  size_t threads = 0;
  // Default for calls without CallOptions.timeout.
  Duration timeout = Duration::max();
};

// Options for a program that has the machine to itself: half of its memory as limits, instead of a server's low
// defaults.
InProcessOptions WholeMachine();

// Unary calls also end when the caller's InterruptionScope says so (posenc/base/interruption.h). A forked child may use
// its parent's InProcess, which starts threads of its own there; streams that the parent was computing are undefined.
class InProcess final : public Backend {
 public:
  explicit InProcess(const InProcessOptions& options = {});

  // A stream, one message at a time. Not thread-safe. Its InProcess must outlive it.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Returns the next answer, or null after the last tile. `part` is the next chunk of a StreamApplyRotary, whose rows
    // may be the one input, and for whose answer there may be one output; for the first answer, and for tiles, `part`
    // is null. The time limit is that of Open().
    virtual absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Next(const v1::StreamApplyRotaryRequest* part,
                                                                            const CallOptions& options) = 0;
  };
  // Begins a StreamTable, a StreamBias, or a StreamApplyRotary by its header. Aborts for the request of another RPC.
  // options.inputs are read during this call only.
  absl::StatusOr<std::unique_ptr<Stream>> Open(const google::protobuf::Message& request, const CallOptions& options);

 private:
  class Tiles;
  class Chunks;

  absl::Status DoUnary(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                       const CallOptions& options, google::protobuf::Message* response) override;
  absl::Status DoTiles(const wire::RpcDescription& rpc, const google::protobuf::Message& request, AnyTileSink sink,
                       const CallOptions& options) override;
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                     const ChunkOptions& chunks, const CallOptions& options) override;
  // Always returns kServing.
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  void DescribeProcess(v1::GetServerInfoResponse* response) const;
  Cancellation DeadlineOf(const CallOptions& options) const;

  // Returns the pool, whose threads are started at first use and again in a forked child.
  WorkPool& Pool();

  const InProcessOptions options_;
  const size_t threads_;
  std::mutex pool_mutex_;
  std::unique_ptr<WorkPool> pool_;
  // The child has none of the pool's threads, so it cannot end the pool.
  const ForkGuard fork_{&pool_mutex_, [this] { static_cast<void>(pool_.release()); }};
};

}  // namespace posenc
