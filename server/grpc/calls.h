// The kinds of calls: one answer, tiles of rows, rotated chunks.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "posenc/service/operations.h"
#include "posenc/wire/walker.h"
#include "server/grpc/call.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

// What distinguishes one unary RPC from another.
struct UnaryMethod {
  using Prepare =
      std::function<absl::StatusOr<wire::Job>(const google::protobuf::Message& request, const wire::Payloads& payloads,
                                              const Limits& limits, google::protobuf::Message* response)>;

  // prepare(const Request&, const wire::Payloads&, const Limits&, Response*).
  template <typename Request, typename Response, typename TypedPrepare>
  static UnaryMethod Of(std::string_view name, TypedPrepare prepare) {
    return {name, Request::default_instance(), Response::default_instance(), wire::Stripper(Request::descriptor()),
            [prepare](const google::protobuf::Message& from, const wire::Payloads& payloads, const Limits& limits,
                      google::protobuf::Message* to) -> absl::StatusOr<wire::Job> {
              return prepare(static_cast<const Request&>(from), payloads, limits, static_cast<Response*>(to));
            }};
  }

  std::string_view name;
  const google::protobuf::Message& request;  // prototypes
  const google::protobuf::Message& response;
  wire::Stripper stripper;
  Prepare prepare;
  // Answered on the thread that received it and not subject to admission, so that an overloaded server can still say
  // so.
  bool immediate = false;
  // What a small request asks for is small or large as its answer is, but for biases over very long distances: it goes
  // into the lane for small calls, is prepared there, and leaves it again if its answer is large.
  bool prepares_quickly = false;
  // A small request cannot ask for much work or a large answer: where its plan is at hand it is served on the thread
  // that received it, which saves handing it over.
  bool as_small_as_its_request = false;
};

// Serves the call: on a thread of the pool, once it is admitted.
std::unique_ptr<Reactor> MakeUnaryCall(Core* core, const UnaryMethod& method, Rpc* rpc, grpc::ByteBuffer* request);

// StreamTable and StreamBias: tiles of rows, one at a time.

// What distinguishes one such RPC from another.
struct TileMethod {
  template <typename Request, typename Response>
  static TileMethod Of(std::string_view name) {
    return {name, Request::default_instance(), Response::default_instance(), wire::Stripper(Request::descriptor()),
            [](const google::protobuf::Message& from, const wire::Payloads& payloads, const Limits& limits) {
              return wire::Prepare(static_cast<const Request&>(from), payloads, limits);
            }};
  }

  std::string_view name;
  const google::protobuf::Message& request;  // prototypes
  const google::protobuf::Message& response;
  wire::Stripper stripper;
  std::function<absl::StatusOr<wire::TileStream>(const google::protobuf::Message& request,
                                                 const wire::Payloads& payloads, const Limits& limits)>
      prepare;
};

// A tile is computed when the one before it has gone to the transport, so a client that does not read holds one. Bytes
// for one tile are charged at the start and kept: an overload that comes later does not break the stream off.
std::unique_ptr<Reactor> MakeTileStream(Core* core, const TileMethod& method, Rpc* rpc, grpc::ByteBuffer* request);

// StreamApplyRotary: a header, then chunks, each answered by itself.

// Chunks are answered in the order in which they come. At most two are in the server's memory: the next one is read
// while one is computed, and none while two wait. Each is charged like a call's request and answer; where that finds no
// room, it waits for the stream's own answers to leave, and without any the stream ends with UNAVAILABLE. `stripper` is
// of StreamApplyRotaryRequest.
std::unique_ptr<Reactor> MakeRotaryStream(Core* core, const wire::Stripper& stripper, Rpc* rpc);

}  // namespace posenc::server
