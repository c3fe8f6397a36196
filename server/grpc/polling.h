// gRPC's asynchronous interface: threads of our own take from it what has happened, and tell reactors.
//
// gRPC's callback interface would do so with threads of gRPC's own, two at least. Whichever of them has taken an event
// first wakes another one, to wait in its place: on few processors that costs more than most calls (ADR 13).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_builder.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

struct Method {
  MakeReactor make;
  bool reads_first = true;  // the client sends one message, which comes with the call
};

// By path, as "/posenc.v1.PositionalEncodingService/ApplyRotary".
using Methods = absl::flat_hash_map<std::string, Method>;

class Polling {
 public:
  // The server that `builder` makes will be polled.
  explicit Polling(grpc::ServerBuilder* builder);
  // Where Start() was called: only after the server's Shutdown() has returned. Waits until all reactors have gone.
  ~Polling();

  // Once the server runs. Another method's calls end with UNIMPLEMENTED.
  void Start(Methods methods, size_t threads);

 private:
  friend class GrpcRpc;
  void Poll();

  Methods methods_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::atomic<int64_t> rpcs_{0};  // expected, or served
  std::vector<std::thread> threads_;
};

}  // namespace posenc::server
