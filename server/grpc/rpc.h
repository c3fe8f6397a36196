// An RPC and who serves it. What carries it is gRPC (server/grpc/polling.h), or a test.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace posenc::server {

// What a reactor can do. Thread-safe, but for one read and one write at a time, none after Finish().
class Rpc {
 public:
  virtual std::chrono::system_clock::time_point deadline() const = 0;
  // Whether the caller no longer waits.
  virtual bool cancelled() const = 0;
  // Before Finish().
  virtual void AddTrailer(const std::string& name, const std::string& value) = 0;
  virtual void TryCancel() = 0;

  // The client's next message, which is there when OnReadDone comes.
  virtual void Read(grpc::ByteBuffer* message) = 0;
  virtual void Write(const grpc::ByteBuffer& message) = 0;
  // Begins to send the end: the reactor may then be gone.
  virtual void Finish(const grpc::Status& status) = 0;
  // The same after one message.
  virtual void WriteAndFinish(const grpc::ByteBuffer& message) = 0;

 protected:
  ~Rpc() = default;
};

// Serves one RPC, which owns it and deletes it when Finish() has been called, what it sent has been taken or given up,
// and all that is told below has been told. That comes from threads of the RPC's, some of it at the same time.
class Reactor {
 public:
  virtual ~Reactor() = default;
  virtual void Start() = 0;
  // False: there is no further message.
  virtual void OnReadDone(bool /*ok*/) {}
  // False: it has not been sent, and nothing will be.
  virtual void OnWriteDone(bool /*ok*/) {}
  // Once after Start(), if the RPC is cancelled, even if it is finished.
  virtual void OnCancel() {}
};

// Of a method. `request`: the client's first message, if the method reads it first, else null; invalid if there is
// none. It stays where it is as long as the reactor.
using MakeReactor = std::function<std::unique_ptr<Reactor>(Rpc* rpc, grpc::ByteBuffer* request)>;

}  // namespace posenc::server
