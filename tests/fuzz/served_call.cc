#include "tests/fuzz/served_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/v1/error.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/server/calls/fake_rpc.h"

namespace posenc::server {
namespace {

using fuzz::Check;

// After this time a call must stop by itself. Even its answer to that is limited to a second (check.h).
constexpr std::chrono::milliseconds kDeadline(200);

// The messages of a stream that are sent.
constexpr size_t kMostRequests = 4;

// After so many messages the caller of a stream cancels it: a request of a few bytes can ask for billions.
constexpr size_t kMostMessages = 64;

// Four slices.
grpc::ByteBuffer Buffer(const std::string& bytes) { return BufferOf(bytes, bytes.size() / 4 + 1); }

// The second call takes fewer slow steps, because the first has filled the caches.
bool WasStopped(const std::string& text) {
  for (const char* words : {"slow steps", "deadline exceeded", "was cancelled"}) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Result ServeInput(const MakeReactor& make, bool takes_sequence, absl::Span<const uint8_t> request) {
  const std::string bytes(reinterpret_cast<const char*>(request.data()), request.size());
  FakeRpc call(takes_sequence ? grpc::ByteBuffer() : Buffer(bytes), FakeRpc::Reactions::kWhileWaiting);
  call.time_limit = std::chrono::system_clock::now() + kDeadline;
  call.Serve(make);
  if (takes_sequence) {
    for (const std::string& message : fuzz::Split(request, kMostRequests)) call.Send(Buffer(message));
    call.HalfClose();
  }
  call.WaitForMessages(kMostMessages);  // or for the end, after which a cancellation does nothing
  call.Cancel();
  Result result{.status = call.Wait(), .messages = {}};
  for (const grpc::ByteBuffer& message : call.messages) result.messages.push_back(BytesOf(message));
  return result;
}

// Checks that details of an error reach the caller, and that they are legal.
void CheckDetails(const grpc::Status& status, bool of_inference) {
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
                           {info.reason(), get("field"), get("value"), get("limit")}),
                   of_inference);
}

bool IsOneIn(size_t inputs, absl::Span<const uint8_t> input) {
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  return std::hash<std::string_view>()(bytes) % inputs == 0;
}

void CheckSame(const Result& first, const Result& second) {
  for (const Result& result : {first, second}) {
    const grpc::StatusCode code = result.status.error_code();
    if (code == grpc::DEADLINE_EXCEEDED || code == grpc::CANCELLED) return;
    if (WasStopped(result.status.error_message())) return;
    // ModelStreamInfer has errors in its messages.
    if (std::any_of(result.messages.begin(), result.messages.end(), WasStopped)) return;
  }
  if (first.messages != second.messages || first.status.error_message() != second.status.error_message()) {
    fuzz::Fail("the same call has two answers: " + first.status.error_message() + " and " +
               second.status.error_message());
  }
}

NumberedRpcs::NumberedRpcs(const std::vector<wire::RpcDescription>& rpcs, std::string_view streamed, Change change)
    : rpcs_(rpcs),
      streamed_(&*std::find_if(rpcs.begin(), rpcs.end(), [&](const auto& rpc) { return rpc.name == streamed; })),
      sequence_(*streamed_->request.GetDescriptor()),
      change_(std::move(change)) {}

const google::protobuf::Message& NumberedRpcs::PrototypeOf(const wire::RpcDescription& rpc) const {
  return TakesSequence(rpc) ? sequence_.prototype() : rpc.request;
}

size_t NumberedRpcs::Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) const {
  fuzz::Random random(seed);
  if (size == 0 || random.OneIn(100)) {
    data[0] = static_cast<uint8_t>(random.Below(rpcs_.size()));
    return std::max<size_t>(size, 1);
  }
  return 1 + fuzz::MutateMessage(PrototypeOf(Of({data, size})), absl::MakeSpan(data + 1, max_size - 1), size - 1,
                                 random, change_);
}

size_t NumberedRpcs::Cross(absl::Span<const uint8_t> to, absl::Span<const uint8_t> from, uint8_t* out, size_t max_size,
                           unsigned seed) const {
  fuzz::Random random(seed);
  if (to.empty() || from.empty() || max_size == 0) return 0;
  out[0] = to[0];
  const size_t size = fuzz::CrossMessages(PrototypeOf(Of(to)), to.subspan(1), PrototypeOf(Of(from)), from.subspan(1),
                                          absl::MakeSpan(out + 1, max_size - 1), random);
  return size == 0 ? 0 : 1 + size;
}

}  // namespace posenc::server

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return posenc::server::Inputs().Mutate(data, size, max_size, seed);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* to, size_t to_size, const uint8_t* from, size_t from_size,
                                            uint8_t* out, size_t max_size, unsigned seed) {
  return posenc::server::Inputs().Cross({to, to_size}, {from, from_size}, out, max_size, seed);
}
