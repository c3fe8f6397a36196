// RPC methods that a load test can call, and the defaults that complete their requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/rpcs.h"
#include "tools/load/mix.h"

namespace posenc::load {

struct Method {
  const wire::RpcDescription& rpc;
  const wire::RpcDescription* stream;  // its streaming variant; null if there is none
  void (*complete)(const Entry&, int64_t offset, google::protobuf::Message*);
  bool takes_model;  // accepts an entry's config.json
};

// Returns INVALID_ARGUMENT (UNKNOWN_VALUE) with the list of methods if there is none of that name.
absl::StatusOr<const Method*> FindMethod(const std::string& name);

// Request tensors whose bytes are passed beside the message, and the regions of the answer's tensors, in field order.
std::vector<v1::Tensor*> InputsOf(google::protobuf::Message* request);
std::vector<v1::Region*> OutputsOf(google::protobuf::Message* request);

}  // namespace posenc::load
