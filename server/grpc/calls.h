// Reactors for the kinds of calls: one answer, a stream of tiles of rows, a stream of rotated chunks.
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

// Description of a unary method.
struct UnaryMethod {
  using Prepare =
      std::function<absl::StatusOr<wire::Job>(const google::protobuf::Message& request, const wire::Payloads& payloads,
                                              const Limits& limits, google::protobuf::Message* response)>;

  // Calls prepare(const Request&, const wire::Payloads&, const Limits&, Response*).
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
  // Served on the receiving thread without admission, so that an overloaded server can still report its state.
  bool immediate = false;
  // A small request costs as much as its answer is large, except for biases over very long distances. It is prepared in
  // the pool's small-task lane, and moves to the bulk lane if its answer is large.
  bool prepares_quickly = false;
  // A small request cannot cause much work or a large answer. If its plan is cached, it is served on the receiving
  // thread, which saves a handover to the pool.
  bool as_small_as_its_request = false;
};

// Serves the call once it is admitted: on a pool thread, or on the receiving thread (see UnaryMethod).
std::unique_ptr<Reactor> MakeUnaryCall(Core* core, const UnaryMethod& method, Rpc* rpc, grpc::ByteBuffer* request);

// StreamTable and StreamBias: tiles of rows, one at a time.

// Description of a method that streams tiles.
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

// Serves a stream of tiles. A tile is computed after the previous one has gone to the transport (backpressure), so a
// client that does not read holds one. One tile's bytes are charged for the whole stream: later overload cannot end it.
std::unique_ptr<Reactor> MakeTileStream(Core* core, const TileMethod& method, Rpc* rpc, grpc::ByteBuffer* request);

// StreamApplyRotary: a header, then chunks, each with its own answer.

// Serves a stream of chunks, in order. At most two are in the server's memory: the next one is read while one is
// computed, and none while two wait. Each is charged like a call's request and answer. If the charge does not fit, the
// chunk waits until the stream's own answers are sent; if there are none, the stream ends with UNAVAILABLE. `stripper`
// is for StreamApplyRotaryRequest.
std::unique_ptr<Reactor> MakeRotaryStream(Core* core, const wire::Stripper& stripper, Rpc* rpc);

}  // namespace posenc::server
