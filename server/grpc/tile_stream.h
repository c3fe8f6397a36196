// StreamTable and StreamBias: tiles of rows, one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "posenc/service/operations.h"
#include "posenc/wire/walker.h"
#include "server/grpc/call.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

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

}  // namespace posenc::server
