// Compares answers with those of the in-process engine, on a separate thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "posenc/in_process/in_process.h"
#include "tools/load/results.h"
#include "tools/load/work.h"

namespace posenc::load {

class Verifier {
 public:
  struct Job {
    std::shared_ptr<const Work> work;
    size_t offset;  // index of the request in `work`
    std::vector<grpc::ByteBuffer> pieces;
    absl::Span<const std::byte> shared;
    std::function<void(const std::optional<Mismatch>&)> done;  // called on the verifier's thread
  };

  Verifier() : here_(WholeMachine()), thread_([this] { Run(); }) {}
  ~Verifier();

  // Queues a job. Returns false if the queue is full: that answer stays unverified, and the caller counts it.
  // Thread-safe.
  bool Offer(Job job);

 private:
  void Run();
  absl::StatusOr<const google::protobuf::Message*> Expected(const std::shared_ptr<const Work>& work, size_t offset);

  static constexpr int64_t kMostBytes = int64_t{512} << 20;  // limit of queued answers, and of cached expected answers

  InProcess here_;
  std::map<std::pair<const Work*, size_t>, std::unique_ptr<google::protobuf::Message>> expected_;
  int64_t expected_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  int64_t bytes_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace posenc::load
