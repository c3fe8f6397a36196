// Channels to servers, and the threads that read what comes back.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/status/statusor.h"
#include "tools/load/exchange.h"

namespace posenc::load {

class Connections {
 public:
  // `connections` to each server, all made within the time, or UNAVAILABLE names a server. `ended` is called for each
  // exchange, by the thread that read its last event.
  static absl::StatusOr<std::unique_ptr<Connections>> Open(const std::vector<std::string>& servers, int connections,
                                                           int threads, double seconds,
                                                           std::function<void(Exchange*)> ended);
  // No exchange may be under way.
  ~Connections();

  // On the next connection. Thread-safe.
  void Start(Exchange* exchange);

  // Processor time of each reading thread so far, in seconds.
  std::vector<double> CpuSeconds() const;

 private:
  struct Reader {
    grpc::CompletionQueue queue;
    std::thread thread;
  };
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    grpc::GenericStub stub;
    Reader* reader;
  };

  explicit Connections(std::function<void(Exchange*)> ended) : ended_(std::move(ended)) {}
  void Read(Reader* reader);

  const std::function<void(Exchange*)> ended_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::atomic<size_t> next_ = 0;
};

}  // namespace posenc::load
