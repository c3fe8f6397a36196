#include "tools/load/requests.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/gather.h"
#include "tools/files/tensor_header.h"
#include "tools/load/methods.h"

namespace posenc::load {
namespace {

using google::protobuf::Message;

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // tensor bytes per stream message
constexpr size_t kMostVerified = 8;                // answers being verified at a time, per entry in shared memory
constexpr size_t kMostMessages = 1'000'000;

// The slices share ownership of `owner`, because gRPC may hold a call's bytes longer than the call.
template <typename Owner>
grpc::ByteBuffer ToBytes(const wire::Gathered& message, const std::shared_ptr<Owner>& owner) {
  std::vector<grpc::Slice> slices;
  for (const auto& [bytes, lent] : message.pieces) {
    if (!lent) {
      slices.emplace_back(bytes.data(), bytes.size());
      continue;
    }
    slices.emplace_back(
        const_cast<std::byte*>(bytes.data()), bytes.size(),
        [](void* held) { delete static_cast<std::shared_ptr<Owner>*>(held); }, new std::shared_ptr<Owner>(owner));
  }
  return {slices.data(), slices.size()};
}

grpc::ByteBuffer ToBytes(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

absl::StatusOr<std::vector<grpc::ByteBuffer>> RotaryStream(const std::shared_ptr<const Work>& work, size_t i) {
  v1::StreamApplyRotaryRequest header;
  *header.mutable_header() = static_cast<const v1::ApplyRotaryRequest&>(work->request(i));
  std::vector<grpc::ByteBuffer> messages = {ToBytes(header)};
  for (size_t operand = 0; operand < work->tensors().size(); ++operand) {
    const absl::Span<const std::byte> bytes = work->tensors()[operand];
    const auto head_row = static_cast<size_t>(work->entry().head_dim) * ElementSize(work->answer()[operand].dtype);
    const size_t step = std::max<size_t>(kPieceBytes / head_row, 1) * head_row;
    for (size_t begin = 0; begin < bytes.size(); begin += step) {
      v1::StreamApplyRotaryRequest request;
      v1::RotaryChunk& chunk = *request.mutable_chunk();
      chunk.set_operand(operand == 0 ? v1::OPERAND_QUERY : v1::OPERAND_KEY);
      chunk.mutable_rows()->set_byte_offset(static_cast<int64_t>(begin));
      const wire::TensorView view{&chunk.rows(), bytes.subspan(begin, step)};
      POSENC_ASSIGN_OR_RETURN(const wire::Gathered gathered, wire::Gather(request, {&view, 1}));
      messages.push_back(ToBytes(gathered, work));
    }
  }
  return messages;
}

absl::StatusOr<std::vector<grpc::ByteBuffer>> Stream(const std::shared_ptr<const Work>& work, size_t i) {
  const Message& request = work->request(i);
  if (const auto* table = dynamic_cast<const v1::GenerateTableRequest*>(&request)) {
    v1::StreamTableRequest stream;
    *stream.mutable_table() = *table;
    return std::vector{ToBytes(stream)};
  }
  if (const auto* bias = dynamic_cast<const v1::GenerateBiasRequest*>(&request)) {
    v1::StreamBiasRequest stream;
    *stream.mutable_bias() = *bias;
    return std::vector{ToBytes(stream)};
  }
  return RotaryStream(work, i);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Slots>> Slots::Create(const Work& work, const std::string& socket, InFlight in_flight) {
  const Entry& entry = work.entry();
  size_t inputs = 0;
  for (const auto& tensor : work.tensors()) inputs += Aligned(tensor.size());
  size_t answer = 0;
  for (const AnswerTensor& tensor : work.answer()) answer += Aligned(tensor.bytes);
  const size_t wanted = in_flight.count + kMostVerified;
  const size_t count = std::clamp<size_t>(kMostBytes / std::max<size_t>(answer, 1), 1, wanted);
  if (in_flight.closed && count < in_flight.count + (in_flight.verify ? 1 : 0)) {
    return TooLarge(Quote(entry.name), absl::StrCat(answer, " bytes per answer"),
                    absl::StrCat("all answers in flight may have at most ", kMostBytes, " bytes"));
  }
  if (entry.offsets.size() * count > kMostMessages) {
    return TooLarge(absl::StrCat(Quote(entry.name), ".offsets"), absl::StrCat(entry.offsets.size()),
                    absl::StrCat("with ", count, " answer slots each, this makes more than ", kMostMessages,
                                 " messages: allow fewer calls in flight"));
  }

  POSENC_ASSIGN_OR_RETURN(SharedMemory memory,
                          SharedMemory::Create(socket, std::max<size_t>(inputs + count * answer, 1)));
  // In a closed loop each call in flight must get a slot.
  const size_t most_verified = in_flight.closed ? count - in_flight.count : kMostVerified;
  std::unique_ptr<Slots> slots(new Slots(std::move(memory), count, most_verified));
  slots->input_bytes_ = inputs;
  slots->answer_bytes_ = answer;
  SharedMemory& shared = slots->memory_;
  for (size_t at = 0; const auto& tensor : work.tensors()) {
    std::memcpy(shared.data() + at, tensor.data(), tensor.size());
    at += Aligned(tensor.size());
  }
  for (size_t i = 0; i < entry.offsets.size(); ++i) {
    for (size_t slot = 0; slot < count; ++slot) {
      const std::unique_ptr<Message> request(work.request(i).New());
      request->CopyFrom(work.request(i));
      size_t at = 0;
      for (size_t n = 0; v1::Tensor * tensor : InputsOf(request.get())) {
        const size_t bytes = work.tensors()[n++].size();
        *tensor->mutable_region() = shared.Part(at, bytes);
        at += Aligned(bytes);
      }
      at = inputs + slot * answer;
      for (size_t n = 0; v1::Region * output : OutputsOf(request.get())) {
        const size_t bytes = work.answer()[n++].bytes;
        *output = shared.Part(at, bytes);
        at += Aligned(bytes);
      }
      slots->messages_.push_back(ToBytes(*request));
    }
  }
  return slots;
}

absl::Span<std::byte> Slots::Answer(const Places::Place& place) {
  return {memory_.data() + input_bytes_ + place.index() * answer_bytes_, answer_bytes_};
}

absl::StatusOr<Requests> MakeRequests(std::shared_ptr<const Work> work, const std::string& socket, InFlight in_flight) {
  Requests requests;
  requests.path = work->rpc().path;
  const Transport transport = work->entry().transport;
  if (transport == Transport::kSharedMemory) {
    if (socket.empty()) {
      return InvalidArgument("MISSING", "shared-memory-socket", "", "required for calls in shared memory");
    }
    POSENC_ASSIGN_OR_RETURN(requests.slots, Slots::Create(*work, socket, in_flight));
  } else {
    for (size_t i = 0; i < work->entry().offsets.size(); ++i) {
      if (transport == Transport::kStream) {
        POSENC_ASSIGN_OR_RETURN(std::vector<grpc::ByteBuffer> messages, Stream(work, i));
        requests.messages.push_back(std::move(messages));
      } else {
        const std::vector<wire::TensorView> inputs = work->inputs(i);
        POSENC_ASSIGN_OR_RETURN(const wire::Gathered gathered, wire::Gather(work->request(i), inputs));
        requests.messages.push_back({ToBytes(gathered, work)});
      }
    }
  }
  requests.work = std::move(work);
  return requests;
}

}  // namespace posenc::load
