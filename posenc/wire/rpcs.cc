#include "posenc/wire/rpcs.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

const Message& PrototypeOf(const google::protobuf::Descriptor* type) {
  return *google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
}

}  // namespace

RpcDescription DescribeRpc(const MethodDescriptor& method, const google::protobuf::FieldDescriptor* more) {
  return {.name = std::string(method.name()),
          .path = absl::StrCat("/", method.service()->full_name(), "/", method.name()),
          .request = PrototypeOf(method.input_type()),
          .response = PrototypeOf(method.output_type()),
          .request_stripper = Stripper(method.input_type(), more),
          .response_stripper = Stripper(method.output_type())};
}

const std::vector<RpcDescription>& Rpcs() {
  static const auto* const rpcs = [] {
    const auto& service =
        *v1::GetServerInfoRequest::descriptor()->file()->FindServiceByName("PositionalEncodingService");
    auto* all = new std::vector<RpcDescription>;
    for (int n = 0; n < service.method_count(); ++n) all->push_back(DescribeRpc(*service.method(n)));
    return all;
  }();
  return *rpcs;
}

const RpcDescription& RpcOf(const google::protobuf::Descriptor& request) {
  const auto& rpcs = Rpcs();
  const auto found = std::find_if(rpcs.begin(), rpcs.end(),
                                  [&](const RpcDescription& rpc) { return rpc.request.GetDescriptor() == &request; });
  if (found == rpcs.end()) std::abort();
  return *found;
}

const RpcDescription* FindRpc(std::string_view name) {
  const auto& rpcs = Rpcs();
  const auto found =
      std::find_if(rpcs.begin(), rpcs.end(), [&](const RpcDescription& rpc) { return rpc.name == name; });
  return found == rpcs.end() ? nullptr : &*found;
}

}  // namespace posenc::wire
