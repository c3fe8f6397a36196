// Answers beside those of the in-process engine, on a thread of its own.
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
    size_t offset;  // which of its requests
    std::vector<grpc::ByteBuffer> pieces;
    absl::Span<const std::byte> shared;
    std::function<void(const std::optional<Mismatch>&)> done;  // on the verifier's thread
  };

  Verifier() : here_(WholeMachine()), thread_([this] { Run(); }) {}
  ~Verifier();

  // Whether there was room: a client that cannot keep up leaves some answers unverified, and says so.
  bool Offer(Job job);

 private:
  void Run();
  absl::StatusOr<const google::protobuf::Message*> Expected(const std::shared_ptr<const Work>& work, size_t offset);

  static constexpr int64_t kMostBytes = int64_t{512} << 20;  // that wait, and that are expected

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
