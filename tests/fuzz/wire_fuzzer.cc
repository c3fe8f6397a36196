// The walker and Gather compared with protobuf. An input is a message type, one byte, and the bytes of a message: type
// 2n is the request of the n-th RPC of service.proto, 2n + 1 its answer.
#include <algorithm>
#include <memory>
#include <string>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "posenc/base/status.h"
#include "posenc/wire/gather.h"
#include "posenc/wire/parse.h"
#include "posenc/wire/rpcs.h"
#include "posenc/wire/walker.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/wire/readings.h"

namespace posenc::wire {
namespace {

using fuzz::Check;
using google::protobuf::Message;

constexpr size_t kNoLimit = size_t{1} << 30;
constexpr int kChunkBytes = 5;

struct Type {
  const Message& prototype;
  const Stripper& stripper;
};

Type TypeOf(absl::Span<const uint8_t> input) {
  const RpcDescription& rpc = Rpcs()[input[0] / 2 % Rpcs().size()];
  if (input[0] % 2 == 0) return {rpc.request, rpc.request_stripper};
  return {rpc.response, rpc.response_stripper};
}

// Reads the bytes with protobuf alone and with the walker. Returns protobuf's reading, null if it refuses the bytes.
std::unique_ptr<Message> ReadBothWays(const Type& type, const std::string& bytes) {
  std::unique_ptr<Message> plain(type.prototype.New());
  const bool legal = plain->ParseFromString(bytes);
  google::protobuf::io::ArrayInputStream chunks(bytes.data(), static_cast<int>(bytes.size()), kChunkBytes);
  const absl::StatusOr<Stripped> stripped = type.stripper.Strip(&chunks, kNoLimit);
  if (!stripped.ok()) fuzz::CheckError(stripped.status());
  const std::unique_ptr<Message> parsed(type.prototype.New());
  const bool accepted = stripped.ok() && parsed->ParseFromString(stripped->message);
  Check(accepted == legal, "only one of protobuf and the walker accepts this");
  if (!legal) return nullptr;
  Resolve(parsed.get(), [&](const Message&, const std::string& ticket) {
    const ByteRange range = RangeOf(ticket, stripped->ranges);
    return bytes.substr(range.offset, range.length);
  });
  Check(Canonical(*parsed) == Canonical(*plain), "protobuf and the walker read different messages");
  return plain;
}

void CheckGathered(const Message& message) {
  const absl::StatusOr<Gathered> gathered = Gather(message, {});
  std::string bytes;
  for (const Gathered::Piece& piece : gathered->pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  Check(bytes.size() == gathered->size && bytes == message.SerializeAsString(), "pieces differ from protobuf's bytes");
}

}  // namespace
}  // namespace posenc::wire

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::wire;
  if (size == 0) return 0;
  const Type type = TypeOf({data, size});
  const auto message = ReadBothWays(type, std::string(data + 1, data + size));
  if (message == nullptr) return 0;
  CheckGathered(*message);
  bool has_regions = false;
  if (data[0] % 2 != 0) return 0;
  if (const absl::Status status = RejectUnknown(*message, &has_regions); !status.ok()) {
    posenc::fuzz::CheckError(status);
  }
  return 0;
}

// Half of the changes are of the bytes: the walker is about those.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace posenc::wire;
  posenc::fuzz::Random random(seed);
  if (size == 0 || random.OneIn(2)) return LLVMFuzzerMutate(data, size, max_size);
  const Type type = TypeOf({data, size});
  return 1 + posenc::fuzz::MutateMessage(type.prototype, absl::MakeSpan(data + 1, max_size - 1), size - 1, random);
}
