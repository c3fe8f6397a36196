#include "posenc/client/rotary_stream.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/strings/str_cat.h"
#include "posenc/backend/tensor_memory.h"
#include "posenc/base/status.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/rpcs.h"
#include "posenc/wire/values.h"
#include "posenc/wire/walker.h"

namespace posenc {
namespace {

const wire::RpcDescription& StreamApplyRotaryRpc() {
  static const wire::RpcDescription& rpc = wire::RpcOf(*v1::StreamApplyRotaryRequest::descriptor());
  return rpc;
}

// Chunks have one field number in both directions, so wire::Answer::OfChunk() can also write requests.
static_assert(int{v1::StreamApplyRotaryRequest::kChunkFieldNumber} ==
              int{v1::StreamApplyRotaryResponse::kChunkFieldNumber});

struct Extent {
  int64_t bytes = 0, row = 1;
};

absl::StatusOr<Extent> ExtentOf(const std::string& name, const v1::Tensor& tensor) {
  const Limits limits;
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, wire::ShapeOf(name, tensor, limits));
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(name, shape, limits));
  const int64_t width = shape.shape.empty() ? 1 : shape.shape.back();
  return Extent{bytes, std::max<int64_t>(width, 1) * static_cast<int64_t>(SizeOf(shape.dtype))};
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace

absl::StatusOr<RotaryTransfer> RotaryTransfer::Create(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                      const ChunkOptions& options) {
  if (options.bytes < 1 || options.in_flight < 1) {
    return InvalidArgument("OUT_OF_RANGE", "chunks", absl::StrCat(options.bytes, " bytes, ", options.in_flight),
                           "bytes and chunks in flight must be at least 1");
  }
  POSENC_ASSIGN_OR_RETURN(const Extent q, ExtentOf("header.q.tensor", header.q().tensor()));
  Extent k;
  if (header.has_k()) {
    POSENC_ASSIGN_OR_RETURN(k, ExtentOf("header.k.tensor", header.k().tensor()));
  }
  POSENC_RETURN_IF_ERROR(CheckMemory(q.bytes, k.bytes, memory));
  const auto operand = [&options](v1::Operand name, const TensorMemory& tensor, const Extent& extent) {
    return Operand{name, static_cast<const std::byte*>(tensor.input), static_cast<std::byte*>(tensor.output),
                   extent.bytes, std::max<int64_t>(options.bytes / extent.row, 1) * extent.row};
  };
  RotaryTransfer transfer;
  transfer.header_ = header;
  transfer.in_flight_ = options.in_flight;
  transfer.q_ = operand(v1::OPERAND_QUERY, memory.q, q);
  transfer.k_ = operand(v1::OPERAND_KEY, memory.k, k);
  return transfer;
}

const RotaryTransfer::Operand* RotaryTransfer::Peek() const {
  for (const Operand* operand : {&q_, &k_}) {
    if (operand->next < operand->size) return operand;
  }
  return nullptr;
}

RotaryTransfer::Chunk RotaryTransfer::Next() {
  if (!again_.empty()) {
    const Chunk chunk = again_.front();
    again_.pop_front();
    return chunk;
  }
  Operand& operand = q_.next < q_.size ? q_ : k_;
  const Chunk chunk{operand.name, operand.next, std::min(operand.chunk, operand.size - operand.next)};
  operand.next += chunk.size;
  return chunk;
}

// Runs one stream of a transfer on a completion queue.
class RotaryExchange {
 public:
  RotaryExchange(RotaryTransfer* transfer, const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                 Loan* loan)
      : transfer_(*transfer),
        context_(*context),
        loan_(*loan),
        stub_(channel),
        call_(stub_.PrepareCall(context, StreamApplyRotaryRpc().path, &queue_)) {}
  ~RotaryExchange() {
    queue_.Shutdown();
    for (void* tag = nullptr; queue_.Next(&tag, &unused_);) {
    }
  }

  grpc::Status Run(absl::Status* broken) {
    call_->StartCall(TagOf(kStarted));
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    while (!finished_ && queue_.Next(&tag, &ok)) Step(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok, &status);
    *broken = broken_;
    std::deque<RotaryTransfer::Chunk>& waiting = transfer_.waiting_;
    transfer_.again_.insert(transfer_.again_.begin(), waiting.begin(), waiting.end());
    waiting.clear();
    return status;
  }

 private:
  enum Event : intptr_t { kStarted = 1, kWritten, kClosed, kRead, kFinished };
  static void* TagOf(Event event) { return reinterpret_cast<void*>(event); }

  void Step(Event event, bool ok, grpc::Status* status) {
    switch (event) {
      case kStarted:
        if (ok) {
          v1::StreamApplyRotaryRequest header;
          *header.mutable_header() = transfer_.header_;
          writing_ = true;
          call_->Write(Serialize(header), TagOf(kWritten));
        }
        call_->Read(&message_, TagOf(kRead));
        break;
      case kWritten:
        writing_ = false;
        if (ok) Write();
        break;
      case kClosed: break;
      case kRead:
        if (!ok) {
          call_->Finish(status, TagOf(kFinished));
          break;
        }
        broken_.Update(Take());
        if (!broken_.ok()) context_.TryCancel();
        call_->Read(&message_, TagOf(kRead));
        Write();
        break;
      case kFinished: finished_ = true; break;
    }
  }

  void Write() {
    if (writing_ || closed_ || !broken_.ok()) return;
    if (!transfer_.HasNext()) {
      closed_ = true;
      call_->WritesDone(TagOf(kClosed));
      return;
    }
    if (transfer_.waiting_.size() >= transfer_.in_flight_) return;
    const RotaryTransfer::Chunk chunk = transfer_.Next();
    transfer_.waiting_.push_back(chunk);
    v1::RotaryChunk message;
    message.set_operand(chunk.operand);
    message.mutable_rows()->set_byte_offset(chunk.begin);
    const wire::Answer layout = wire::Answer::OfChunk(message, chunk.size);
    std::string header(layout.data_offset(0), '\0');
    layout.WriteHeaders(reinterpret_cast<std::byte*>(header.data()));
    const std::byte* const rows = transfer_.Of(chunk.operand).input + chunk.begin;
    const grpc::Slice slices[] = {grpc::Slice(header), loan_.Lend({rows, static_cast<size_t>(chunk.size)})};
    writing_ = true;
    call_->Write(grpc::ByteBuffer(slices, 2), TagOf(kWritten));
  }

  // Handles an answer: copies a chunk's bytes from gRPC's slices to the output.
  absl::Status Take() {
    std::vector<grpc::Slice> slices;
    v1::StreamApplyRotaryResponse response;
    if (!message_.Dump(&slices).ok()) return absl::InternalError("an answer that cannot be read");
    transport::SliceStream stream(slices);
    POSENC_ASSIGN_OR_RETURN(wire::Stripped stripped,
                            StreamApplyRotaryRpc().response_stripper.Strip(&stream, message_.Length() + 16));
    if (!response.ParseFromString(stripped.message)) return absl::InternalError("an answer that cannot be read");
    if (response.has_info()) transfer_.info_ = response.info();
    if (!response.has_chunk()) return absl::OkStatus();
    const v1::RotaryChunk& chunk = response.chunk();
    const transport::SlicedPayloads payloads(std::move(slices), std::move(stripped.ranges));
    const auto size = static_cast<int64_t>(payloads.Size(chunk.rows()));
    std::deque<RotaryTransfer::Chunk>& waiting = transfer_.waiting_;
    const auto asked = std::find_if(waiting.begin(), waiting.end(), [&](const RotaryTransfer::Chunk& sent) {
      return sent.operand == chunk.operand() && sent.begin == chunk.rows().byte_offset() && sent.size == size;
    });
    if (asked == waiting.end()) return absl::InternalError("an answer to no chunk that was sent");
    payloads.CopyTo(chunk.rows(), transfer_.Of(asked->operand).output + asked->begin);
    waiting.erase(asked);
    ++transfer_.answered_;
    return absl::OkStatus();
  }

  RotaryTransfer& transfer_;
  grpc::ClientContext& context_;
  Loan& loan_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer message_;
  absl::Status broken_;
  bool writing_ = false, closed_ = false, finished_ = false, unused_ = false;
};

grpc::Status RotaryTransfer::Run(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                                 Loan* loan, absl::Status* broken) {
  return RotaryExchange(this, channel, context, loan).Run(broken);
}

}  // namespace posenc
