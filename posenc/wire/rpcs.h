// The RPCs of posenc.v1.PositionalEncodingService, as its descriptor lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "posenc/wire/walker.h"

namespace posenc::wire {

inline constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";

struct RpcDescription {
  std::string name;  // "ApplyRotary"
  std::string path;  // "/posenc.v1.PositionalEncodingService/ApplyRotary"
  const google::protobuf::Message& request;
  const google::protobuf::Message& response;
  Stripper request_stripper;
  Stripper response_stripper;
};

// Describes an RPC of any service. `more`: see Stripper.
RpcDescription DescribeRpc(const google::protobuf::MethodDescriptor& method,
                           const google::protobuf::FieldDescriptor* more = nullptr);

// All RPCs in the order of service.proto.
const std::vector<RpcDescription>& Rpcs();

// Returns the RPC with this request message; each RPC has its own. Aborts if there is none.
const RpcDescription& RpcOf(const google::protobuf::Descriptor& request);

// Returns the RPC of this name, null if there is none.
const RpcDescription* FindRpc(std::string_view name);

}  // namespace posenc::wire
