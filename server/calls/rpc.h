// Interfaces of an RPC and of the reactor that serves it. Rpc is implemented by gRPC (server/grpc/completion_queue.h)
// and by tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "server/access/policy.h"
#include "server/core/admission.h"
#include "server/listen/peer.h"
#include "server/trace/call_span.h"

namespace posenc::server {

// Operations of a reactor on its RPC. Thread-safe, but with at most one read and one write at a time, none after
// Finish().
class Rpc {
 public:
  virtual std::chrono::system_clock::time_point deadline() const = 0;
  // Name of the caller's connection, e.g. "ipv4:192.0.2.1:50051", or of its address as a trusted proxy gives it; empty
  // if it has none of its own.
  virtual std::string connection() const = 0;
  // A number that all RPCs of the transport connection have, and those of no other open one.
  virtual uint64_t connection_number() const = 0;
  // True if the caller is on this host: over a Unix socket or the loopback interface, and not by a proxy, as far as the
  // headers tell.
  virtual bool is_local() const = 0;
  // True if the connection is one of a Unix socket.
  virtual bool is_unix() const = 0;
  // The caller, if the server has a policy; else null.
  virtual const Identity* identity() const = 0;
  // Checks that the caller still may call the method, and counts a further message of a stream against its rate. Errors
  // as those of a call that is not admitted (AccessControl::Admit); OK if the server has no policy.
  virtual absl::Status AdmitMessage() = 0;
  // The caller's header of this name, in lower case; the first if there are several. Empty if absent.
  virtual std::string header(const std::string& name) const = 0;
  // The RPC's span; null if it is not traced. The threads of the RPC take turns.
  virtual CallSpan* span() { return nullptr; }
  // True if the caller no longer waits.
  virtual bool cancelled() const = 0;
  // Must be called before Finish().
  virtual void AddTrailer(const std::string& name, const std::string& value) = 0;
  virtual void TryCancel() = 0;
  // Bracket a request: the whole RPC, or one message of a stream that asks for an answer of its own. In between, a
  // drain leaves the connection open. See RequestInProgress.
  virtual void BeginRequest() = 0;
  virtual void EndRequest() = 0;

  // Reads the client's next message into *message, which is complete when OnReadDone() is called.
  virtual void Read(grpc::ByteBuffer* message) = 0;
  virtual void Write(const grpc::ByteBuffer& message) = 0;
  // Begins to send the final status. The reactor may be destroyed from then on.
  virtual void Finish(const grpc::Status& status) = 0;
  // Sends one message, then finishes with OK. The reactor may be destroyed from then on.
  virtual void WriteAndFinish(const grpc::ByteBuffer& message) = 0;

 protected:
  ~Rpc() = default;
};

// RAII for BeginRequest() and EndRequest().
struct EndOfRequest {
  void operator()(Rpc* rpc) const { rpc->EndRequest(); }
};
using RequestInProgress = std::unique_ptr<Rpc, EndOfRequest>;
inline RequestInProgress BeginRequest(Rpc* rpc) {
  rpc->BeginRequest();
  return RequestInProgress(rpc);
}

// Returns the name under which the RPC's caller shares the server with others: "identity NAME" under a policy,
// otherwise its address, "192.0.2.1" or "2001:db8:1:2::/64"; "unix" for all callers over Unix sockets.
inline std::string CallerName(const Identity* identity, const std::string& connection) {
  return identity == nullptr ? NameOf(PeerOf(connection)) : "identity " + identity->name;
}
inline std::string CallerName(const Rpc& rpc) { return CallerName(rpc.identity(), rpc.connection()); }
inline Caller CallerOf(const Identity* identity, const std::string& connection) {
  std::string name = CallerName(identity, connection);
  if (identity == nullptr) return {.name = std::move(name)};
  return {std::move(name), identity->max_in_flight_requests, identity->max_in_flight_bytes};
}
inline Caller CallerOf(const Rpc& rpc) { return CallerOf(rpc.identity(), rpc.connection()); }

// Serves one RPC, which owns it. The RPC deletes it after Finish(), once all messages have been sent or dropped and all
// callbacks below have returned. The callbacks come from the RPC's threads, some of them concurrently.
class Reactor {
 public:
  virtual ~Reactor() = default;
  virtual void Start() = 0;
  // ok is false if there is no further message.
  virtual void OnReadDone(bool /*ok*/) {}
  // ok is false if the message was not sent; no later one will be.
  virtual void OnWriteDone(bool /*ok*/) {}
  // Called once after Start() if the RPC is cancelled, even if it is finished.
  virtual void OnCancel() {}
};

// Makes a method's reactor. `request`: the client's first message if the method reads it first, else null; invalid if
// the client sent none. It outlives the reactor.
using MakeReactor = std::function<std::unique_ptr<Reactor>(Rpc* rpc, grpc::ByteBuffer* request)>;

}  // namespace posenc::server
