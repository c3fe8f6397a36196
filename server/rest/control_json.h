// Methods of the Open Inference Protocol without tensors, over HTTP: paths, and their messages as JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/message.h"
#include "server/rest/http_rpc.h"
#include "server/rest/path.h"

namespace posenc::server {

struct ControlRoute {
  std::string_view verb;
  std::string pattern;  // of Path::Match()
  std::string method;   // of inference.GRPCInferenceService
  // Makes the method's request of a path and a body.
  std::function<absl::StatusOr<grpc::ByteBuffer>(const PathNames&, std::string_view body)> read;
  std::function<absl::StatusOr<HttpAnswer>(grpc::ByteBuffer message)> write;
};

const std::vector<ControlRoute>& ControlRoutes();

}  // namespace posenc::server
