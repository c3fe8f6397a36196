// The client's streaming methods.
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "posenc/backend/tensor_memory.h"
#include "posenc/base/status.h"
#include "posenc/client/client.h"
#include "posenc/client/rotary_stream.h"
#include "posenc/client/transfer.h"
#include "posenc/wire/gather.h"

namespace posenc {

namespace {

// A server-streaming call in messages of bytes, one blocking step at a time.
class TileReader {
 public:
  // `context` and `request` must outlive the reader.
  TileReader(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context, const std::string& path,
             const grpc::ByteBuffer& request)
      : stub_(channel), call_(stub_.PrepareCall(context, path, &queue_)) {
    call_->StartCall(nullptr);
    if (!WaitForStep()) return;
    call_->WriteLast(request, grpc::WriteOptions(), nullptr);
    WaitForStep();
  }
  ~TileReader() { queue_.Shutdown(); }

  // Returns false at the end of the stream.
  bool Read(grpc::ByteBuffer* tile) {
    call_->Read(tile, nullptr);
    return WaitForStep();
  }

  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    WaitForStep();
    return status;
  }

 private:
  bool WaitForStep() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace

absl::Status Client::DoTiles(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                             AnyTileSink sink, const CallOptions& options) {
  POSENC_RETURN_IF_ERROR(RefuseMemory(options));
  POSENC_ASSIGN_OR_RETURN(const wire::Gathered gathered, wire::Gather(request, {}));
  return Retry(options_.retry, options_.environment, options.timeout.value_or(options_.timeout),
               [&](Duration remaining) {
                 bool handed_over = false;
                 absl::Status unusable;  // from the sink, or because of a malformed tile
                 Loan loan;              // outlives the call
                 const grpc::ByteBuffer bytes = loan.Lend(gathered);
                 Attempt attempt = Try(remaining, [&](const auto& channel, grpc::ClientContext& context) {
                   TileReader reader(channel, &context, rpc.path, bytes);
                   for (grpc::ByteBuffer received; unusable.ok() && reader.Read(&received);) {
                     const std::unique_ptr<google::protobuf::Message> tile(rpc.response.New());
                     unusable = Receive(received, options_.address, request, rpc.response_stripper, {}, tile.get());
                     handed_over = true;
                     if (unusable.ok()) unusable = sink(*tile);
                   }
                   if (!unusable.ok()) context.TryCancel();
                   return reader.Finish();
                 });
                 if (!unusable.ok()) attempt.status = unusable;
                 attempt.repeatable = !handed_over;
                 return attempt;
               });
}

absl::StatusOr<v1::AnswerInfo> Client::DoStreamApplyRotary(const v1::ApplyRotaryRequest& header,
                                                           const RotaryMemory& memory, const ChunkOptions& chunks,
                                                           const CallOptions& options) {
  POSENC_RETURN_IF_ERROR(RefuseMemory(options));
  POSENC_ASSIGN_OR_RETURN(RotaryTransfer transfer, RotaryTransfer::Create(header, memory, chunks));
  const absl::Status status =
      Retry(options_.retry, options_.environment, options.timeout.value_or(options_.timeout), [&](Duration remaining) {
        absl::Status broken;
        const int64_t before = transfer.answered();
        Loan loan;  // outlives the call
        Attempt attempt = Try(remaining, [&](const auto& channel, grpc::ClientContext& context) {
          return transfer.Run(channel, &context, &loan, &broken);
        });
        attempt.progressed = transfer.answered() > before;
        // The server's time limit for one call, not the caller's deadline: a new stream gets a new limit.
        const bool limit_of_server =
            absl::IsDeadlineExceeded(attempt.status) && !DetailsOf(attempt.status).byte_offset.empty();
        if (limit_of_server && attempt.progressed) {
          attempt.status = absl::UnavailableError(attempt.status.message());
        }
        if (!broken.ok()) attempt.status = broken;
        if (attempt.status.ok() && !transfer.done()) {
          attempt.status = absl::InternalError("the server ended the stream before all was answered");
        }
        return attempt;
      });
  if (!status.ok()) return status;
  return transfer.info();
}

}  // namespace posenc
