// Calls of every RPC of service.proto (served_call.h); the stream is StreamApplyRotary.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/rpcs.h"
#include "posenc/wire/shared_memory.h"
#include "server/calls/calls.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/evidence.h"
#include "tests/fuzz/served_call.h"

namespace posenc::server {

namespace {

using fuzz::Check;
using google::protobuf::Message;

// Memory that a request can name by a token of 16 equal letters: 'w' can be written to, 'r' cannot.
class Regions final : public wire::SharedMemorySource {
 public:
  std::shared_ptr<const wire::SharedMemory> Find(std::string_view token) const override {
    for (const char letter : {'w', 'r'}) {
      if (token == std::string(16, letter)) return std::make_shared<Memory>(letter);
    }
    return nullptr;
  }
  static void Reset() { bytes_.fill(std::byte{0x3f}); }  // floats near 0.75

 private:
  class Memory final : public wire::SharedMemory {
   public:
    explicit Memory(char letter) : letter_(letter) {}
    absl::Span<std::byte> bytes() const override {
      return absl::MakeSpan(bytes_).subspan(writable() ? 0 : kBytes, kBytes);
    }
    bool writable() const override { return letter_ == 'w'; }
    std::pair<uint64_t, uint64_t> file() const override { return {0, letter_}; }
    bool damaged() const override { return false; }

   private:
    const char letter_;
  };
  static constexpr size_t kBytes = 1024;
  static inline std::array<std::byte, 2 * kBytes> bytes_;
};

bool IsDiagnosis(const wire::RpcDescription& rpc) {
  const auto* type = rpc.request.GetDescriptor();
  return type == v1::DiagnoseRequest::descriptor() || type == v1::DiagnoseBiasRequest::descriptor();
}

// Checks that each tensor of an answer has the bytes that its type and shape say.
void CheckTensors(const Message& message) {
  static const std::map<v1::DataType, int64_t> kBytes = {
      {v1::DATA_TYPE_FP64, 8}, {v1::DATA_TYPE_INT64, 8}, {v1::DATA_TYPE_FP32, 4}, {v1::DATA_TYPE_INT32, 4},
      {v1::DATA_TYPE_FP16, 2}, {v1::DATA_TYPE_BF16, 2},  {v1::DATA_TYPE_BOOL, 1}};
  if (const auto* tensor = google::protobuf::DynamicCastToGenerated<v1::Tensor>(&message)) {
    int64_t bytes = kBytes.at(tensor->dtype());
    for (const int64_t size : tensor->shape()) bytes *= size;
    const auto held = tensor->has_region() ? tensor->region().byte_size() : static_cast<int64_t>(tensor->data().size());
    if (bytes != held) fuzz::Fail("a tensor's bytes do not match its shape: " + message.ShortDebugString());
    return;
  }
  const auto& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() != nullptr && !field->is_repeated()) CheckTensors(reflection.GetMessage(message, field));
  }
}

class Server {
 public:
  Server() : core_(SmallConfig()) { core_.memory = std::make_shared<Regions>(); }

  static Server& Only() {
    static auto* const server = new Server;
    return *server;
  }

  Result Call(const wire::RpcDescription& rpc, absl::Span<const uint8_t> input) {
    Regions::Reset();
    return ServeInput([&](Rpc* served, grpc::ByteBuffer* request) { return Make(rpc, served, request); },
                      Inputs().TakesSequence(rpc), input);
  }

 private:
  std::unique_ptr<Reactor> Make(const wire::RpcDescription& rpc, Rpc* served, grpc::ByteBuffer* request) {
    if (Inputs().TakesSequence(rpc)) return MakeRotaryStream(&core_, served);
    const wire::Operations& operations = wire::LibraryOperations();
    for (const wire::TileOperation& tiles : operations.tiles) {
      if (&tiles.rpc == &rpc) return MakeTileStream(&core_, tiles, served, request);
    }
    const wire::UnaryOperation& unary = operations.UnaryOf(rpc);
    return MakeUnaryCall(&core_, unary.prepare ? unary : information_, served, request);
  }

  // GetServerInfo, which the process answers.
  const wire::UnaryOperation information_ =
      wire::UnaryOperation::Of<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
          [](const auto&, const wire::Payloads&, const wire::CallContext& context, auto* response) {
            wire::DescribeLibrary(context.limits, response);
            return absl::StatusOr<wire::Job>(wire::Job());
          },
          wire::Scheduling::kImmediate);
  Core core_;
};

void CheckResult(const wire::RpcDescription& rpc, const Result& result) {
  for (const std::string& bytes : result.messages) {
    const std::unique_ptr<Message> message(rpc.response.New());
    Check(message->ParseFromString(bytes), "an answer that cannot be parsed");
    CheckTensors(*message);
  }
  if (!result.status.ok()) CheckDetails(result.status);
}

bool Answer(const Message& request, Message* response) {
  const std::string bytes = request.SerializeAsString();
  const Result result = Server::Only().Call(wire::RpcOf(*request.GetDescriptor()),
                                            {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return result.status.ok() && response->ParseFromString(result.messages.at(0));
}

}  // namespace

const NumberedRpcs& Inputs() {
  static const auto* const inputs =
      new NumberedRpcs(wire::Rpcs(), "StreamApplyRotary", [](Message* request, fuzz::Random& random) {
        if (random.OneIn(4)) fuzz::ComputeEvidence(Answer, request, random);
      });
  return *inputs;
}

}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  if (size == 0) return 0;
  const auto& rpc = Inputs().Of({data, size});
  const absl::Span<const uint8_t> request(data + 1, size - 1);
  const Result first = Server::Only().Call(rpc, request);
  CheckResult(rpc, first);
  // Diagnoses take ten times as long as other calls. One in eight may be kept in the corpus: of all inputs that reach
  // new code, two in three are diagnoses, and the other calls would wait for them.
  const bool is_diagnosis = IsDiagnosis(rpc);
  if (!IsOneIn(is_diagnosis ? 8 : 4, {data, size})) return is_diagnosis ? -1 : 0;
  // Once more, with what the first call left in caches.
  const Result second = Server::Only().Call(rpc, request);
  CheckResult(rpc, second);
  CheckSame(first, second);
  return 0;
}
