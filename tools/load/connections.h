// Channels to servers, and the threads that read their completion queues.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/status/statusor.h"
#include "posenc/client/tls.h"
#include "tools/load/exchange.h"

namespace posenc::load {

class Connections {
 public:
  // Opens `connections` channels to each server. Returns UNAVAILABLE naming a server that is not connected within
  // `seconds`. `tls`: absent: not encrypted. `ended` is called for each exchange, on the thread that read its last
  // event.
  static absl::StatusOr<std::unique_ptr<Connections>> Open(const std::vector<std::string>& servers,
                                                           const std::optional<Tls>& tls, int connections, int threads,
                                                           double seconds, std::function<void(Exchange*)> ended);
  // No exchange may be in flight.
  ~Connections();

  // Starts the exchange on the next connection, round-robin. Thread-safe.
  void Start(Exchange* exchange);

  // Processor time used so far by each reading thread, in seconds.
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
