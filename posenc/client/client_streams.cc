// The client's streaming methods.
#include <memory>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/client/client.h"
#include "posenc/client/rotary_stream.h"
#include "posenc/client/tensor_memory.h"
#include "posenc/client/transfer.h"

namespace posenc {

template <typename Request, typename Response>
absl::Status Client::Tiles(std::unique_ptr<grpc::ClientReader<Response>> (v1::PositionalEncodingService::Stub::*method)(
                               grpc::ClientContext*, const Request&),
                           const Request& request, absl::FunctionRef<absl::Status(const Response&)> sink,
                           const CallOptions& options) const {
  POSENC_RETURN_IF_ERROR(RefuseMemory(options));
  return Retry(options_.retry, options_.environment, options.timeout.value_or(options_.timeout),
               [&](Duration remaining) {
                 bool handed_over = false;
                 absl::Status from_sink;
                 Attempt attempt = Try(remaining, [&](const auto& channel, grpc::ClientContext& context) {
                   const auto stub = v1::PositionalEncodingService::NewStub(channel);
                   const auto reader = (stub.get()->*method)(&context, request);
                   Response tile;
                   while (from_sink.ok() && reader->Read(&tile)) {
                     handed_over = true;
                     from_sink = sink(tile);
                   }
                   if (!from_sink.ok()) context.TryCancel();
                   return reader->Finish();
                 });
                 if (!from_sink.ok()) attempt.status = from_sink;
                 attempt.repeatable = !handed_over;
                 return attempt;
               });
}

absl::Status Client::DoStreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options) {
  return Tiles(&v1::PositionalEncodingService::Stub::StreamTable, request, sink, options);
}

absl::Status Client::DoStreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink, const CallOptions& options) {
  return Tiles(&v1::PositionalEncodingService::Stub::StreamBias, request, sink, options);
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
