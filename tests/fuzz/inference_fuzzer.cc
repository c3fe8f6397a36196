// Calls of every RPC of the Open Inference Protocol (served_call.h); the stream is ModelStreamInfer. The server is that
// of inference_server.h.
#include <memory>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/calls/inference_service.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/inference_server.h"
#include "tests/fuzz/served_call.h"

namespace posenc::server {

const NumberedRpcs& Inputs() {
  static const auto* const inputs = new NumberedRpcs(InferenceRpcs(), "ModelStreamInfer");
  return *inputs;
}

namespace {

using fuzz::Check;

class Server : public InferenceServer {
 public:
  Result Call(const wire::RpcDescription& rpc, absl::Span<const uint8_t> request) {
    Reset();
    Result result = ServeInput(methods().at(rpc.path).make, Inputs().TakesSequence(rpc), request);
    const grpc::StatusCode code = result.status.error_code();
    const bool refused = code == grpc::INVALID_ARGUMENT || code == grpc::NOT_FOUND;
    if (rpc.name.starts_with("RepositoryModel") && !refused) RestoreModels();
    return result;
  }
};

// Also brings the entries of maps into order, so that equal answers have equal bytes.
void CheckResult(const wire::RpcDescription& rpc, Result& result) {
  for (std::string& bytes : result.messages) {
    const std::unique_ptr<google::protobuf::Message> message(rpc.response.New());
    Check(message->ParseFromString(bytes), "an answer that cannot be parsed");
    bytes.clear();
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message->SerializeToCodedStream(&coded);
  }
  if (!result.status.ok()) CheckDetails(result.status, /*of_inference=*/true);
}

}  // namespace
}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  if (size == 0) return 0;
  static Server server;  // destroyed at the end: it has a name in the system
  const auto& rpc = Inputs().Of({data, size});
  const absl::Span<const uint8_t> request(data + 1, size - 1);
  Result first = server.Call(rpc, request);
  CheckResult(rpc, first);
  if (!IsOneIn(4, {data, size})) return 0;
  Result second = server.Call(rpc, request);
  CheckResult(rpc, second);
  if (rpc.name != "ModelStatistics") CheckSame(first, second);
  return 0;
}
