// Calls of every RPC, served by the server's own reactors on a transport without gRPC (tests/fake_grpc). An input is
// the RPC's number in service.proto, one byte, and the request; for StreamApplyRotary a sequence of messages.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "posenc/base/status.h"
#include "posenc/v1/error.pb.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/rpcs.h"
#include "posenc/wire/shared_memory.h"
#include "server/grpc/calls.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/sequence.h"
#include "tests/server/grpc/fake_rpc.h"

namespace posenc::server {
namespace {

using fuzz::Check;
using google::protobuf::Message;

// After this time a call must stop by itself. Even its answer to that is limited to a second (check.h).
constexpr std::chrono::milliseconds kDeadline(200);

// After so many messages the caller of a stream cancels it: a request of a few bytes can ask for billions.
constexpr size_t kMostMessages = 64;

// Small enough that no legal call takes a second with sanitizers.
Config SmallConfig() {
  Config config;
  config.threads = 1;
  config.limits.max_request_bytes = 64 << 10;
  config.limits.max_output_bytes = 64 << 10;
  config.limits.max_rotary_dim = 1024;
  config.limits.max_heads = 256;
  config.limits.max_sequences = 64;
  config.limits.max_plan_values = 1024;
  config.limits.max_bias_values = 1 << 13;
  config.max_call_cost = 2000;
  config.max_in_flight_bytes = 16 << 20;
  config.answer_pool_bytes = 1 << 20;
  config.plan_cache_bytes = config.table_cache_bytes = 1 << 20;
  return config;
}

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

const wire::RpcDescription& RpcOfInput(absl::Span<const uint8_t> input) {
  return wire::Rpcs()[input[0] % wire::Rpcs().size()];
}

bool TakesSequence(const wire::RpcDescription& rpc) {
  return rpc.request.GetDescriptor() == v1::StreamApplyRotaryRequest::descriptor();
}

bool IsDiagnosis(const wire::RpcDescription& rpc) {
  const auto* type = rpc.request.GetDescriptor();
  return type == v1::DiagnoseRequest::descriptor() || type == v1::DiagnoseBiasRequest::descriptor();
}

// The bytes in four slices, as gRPC delivers them in frames.
grpc::ByteBuffer Buffer(const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  const size_t most = bytes.size() / 4 + 1;
  for (size_t at = 0; at < bytes.size(); at += most) {
    auto* part = new std::string(bytes, at, most);
    slices.emplace_back(
        part->data(), part->size(), [](void* text) { delete static_cast<std::string*>(text); }, part);
  }
  return {slices.data(), slices.size()};
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  buffer.Dump(&slices);
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
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

// Checks that details of an error reach the caller, and that they are legal.
void CheckDetails(const grpc::Status& status) {
  v1::RichStatus rich;
  v1::ErrorInfo info;
  Check(rich.ParseFromString(status.error_details()) && rich.details_size() > 0 &&
            info.ParseFromString(rich.details(0).value()),
        "details of an error that cannot be parsed");
  const auto get = [&info](const char* key) -> std::string {
    const auto found = info.metadata().find(key);
    return found == info.metadata().end() ? "" : found->second;
  };
  fuzz::CheckError(Restore(static_cast<absl::StatusCode>(status.error_code()), rich.message(),
                           {info.reason(), get("field"), get("value"), get("limit")}));
}

struct Result {
  grpc::Status status;
  std::vector<std::string> messages;
};

class Server {
 public:
  Server() : core_(SmallConfig()) { core_.memory = std::make_shared<Regions>(); }

  Result Call(const wire::RpcDescription& rpc, absl::Span<const uint8_t> input) {
    Regions::Reset();
    const std::string bytes(reinterpret_cast<const char*>(input.data()), input.size());
    FakeRpc call(TakesSequence(rpc) ? grpc::ByteBuffer() : Buffer(bytes));
    call.time_limit = std::chrono::system_clock::now() + kDeadline;
    call.Serve([&](Rpc* served, grpc::ByteBuffer* request) { return Make(rpc, served, request); });
    if (TakesSequence(rpc)) {
      for (const std::string& message : fuzz::Split(input)) call.Send(Buffer(message));
      call.HalfClose();
    }
    call.WaitForMessages(kMostMessages);  // or for the end, after which a cancellation does nothing
    call.Cancel();
    Result result{.status = call.Wait(), .messages = {}};
    for (const grpc::ByteBuffer& message : call.messages) result.messages.push_back(Text(message));
    return result;
  }

 private:
  std::unique_ptr<Reactor> Make(const wire::RpcDescription& rpc, Rpc* served, grpc::ByteBuffer* request) {
    if (TakesSequence(rpc)) return MakeRotaryStream(&core_, served);
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

// The type with which the mutator changes requests of the RPC.
const Message& PrototypeOf(const wire::RpcDescription& rpc) {
  static const fuzz::SequenceType* const kSequence =
      new fuzz::SequenceType(*v1::StreamApplyRotaryRequest::descriptor());
  return TakesSequence(rpc) ? kSequence->prototype() : rpc.request;
}

}  // namespace
}  // namespace posenc::server

// The server replaces operator new, but not the forms that call it, which AddressSanitizer replaces too.
extern "C" const char* __asan_default_options() { return "alloc_dealloc_mismatch=0"; }

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  if (size == 0) return 0;
  static auto* const server = new Server;
  const auto& rpc = RpcOfInput({data, size});
  const absl::Span<const uint8_t> request(data + 1, size - 1);
  const Result first = server->Call(rpc, request);
  CheckResult(rpc, first);
  // Diagnoses, which take ten times as long as other calls, are called again for one input in eight, which its bytes
  // choose.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (IsDiagnosis(rpc) && std::hash<std::string_view>()(bytes) % 8 != 0) return 0;
  // Once more, with what the first call left in caches.
  const Result second = server->Call(rpc, request);
  CheckResult(rpc, second);
  for (const Result& result : {first, second}) {
    const grpc::StatusCode code = result.status.error_code();
    if (code == grpc::DEADLINE_EXCEEDED || code == grpc::CANCELLED) return 0;
    // The second call takes fewer slow steps, because the first has filled the caches.
    if (result.status.error_message().find("slow steps") != std::string::npos) return 0;
  }
  if (first.messages != second.messages || first.status.error_message() != second.status.error_message()) {
    Fail("the same call has two answers: " + first.status.error_message() + " and " + second.status.error_message());
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace posenc::server;
  posenc::fuzz::Random random(seed);
  if (size == 0 || random.OneIn(100)) {
    data[0] = static_cast<uint8_t>(random.Below(posenc::wire::Rpcs().size()));
    return std::max<size_t>(size, 1);
  }
  const Message& prototype = PrototypeOf(RpcOfInput({data, size}));
  return 1 + posenc::fuzz::MutateMessage(prototype, absl::MakeSpan(data + 1, max_size - 1), size - 1, random);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* to, size_t to_size, const uint8_t* from, size_t from_size,
                                            uint8_t* out, size_t max_size, unsigned seed) {
  using namespace posenc::server;
  posenc::fuzz::Random random(seed);
  if (to_size == 0 || from_size == 0 || max_size == 0) return 0;
  const auto& rpc = RpcOfInput({to, to_size});
  const auto& other = RpcOfInput({from, from_size});
  out[0] = to[0];
  const size_t size =
      posenc::fuzz::CrossMessages(PrototypeOf(rpc), {to + 1, to_size - 1}, PrototypeOf(other),
                                  {from + 1, from_size - 1}, absl::MakeSpan(out + 1, max_size - 1), random);
  return size == 0 ? 0 : 1 + size;
}
