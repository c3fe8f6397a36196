// The methods that can be called under load, and what a request of each lacks that says nothing more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"
#include "posenc/client/backend.h"
#include "tools/load/mix.h"

namespace posenc::load {

struct Method {
  const char* name;
  const google::protobuf::Message* request;
  const google::protobuf::Message* response;
  const google::protobuf::Message* piece;  // of the answer as a stream; null: there is no such method
  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> (*run)(Backend&, const google::protobuf::Message&,
                                                                    const CallOptions&);
  void (*complete)(const Entry&, int64_t offset, google::protobuf::Message*);
  bool takes_model;  // an entry's config.json
};

// UNKNOWN_VALUE lists them.
absl::StatusOr<const Method*> FindMethod(const std::string& name);

// A request's tensors whose bytes come beside it, and where its answer's tensors go, in the order of the fields.
std::vector<v1::Tensor*> InputsOf(google::protobuf::Message* request);
std::vector<v1::Region*> OutputsOf(google::protobuf::Message* request);

}  // namespace posenc::load
