// The RPCs' operations, without gRPC: they turn a parsed request into a job that fills its answer's tensors.
// LibraryOperations() is the table of them (operations.cc).
//
// There are two steps, because the answer's sizes must be known, charged and allocated before anything is computed:
// Prepare() validates, plans, and fills the response except for the tensors' data; Job::run computes the data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/service/call_context.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/rpcs.h"

namespace posenc::wire {

struct Job {
  using Run = std::function<absl::Status(const Payloads& payloads, absl::Span<std::byte* const> buffers, WorkPool& pool,
                                         const Cancellation& cancelled)>;

  std::vector<Output> outputs;  // in the order of their field numbers in the response
  // Fills a response that takes long to compute and has no outputs, before it is laid out. Null: the response is filled
  // already. Threads and lifetimes as for run.
  std::function<absl::Status(WorkPool& pool, const Cancellation& cancelled)> decide;
  // Writes outputs[n].bytes bytes to buffers[n], which is outputs[n].region() unless that is null. Can run on any
  // thread; request and response must outlive it. The buffers need no alignment. Null: there are no outputs.
  Run run;
  // Computes all that may take long, such as the tables of a rotation, and returns a run that takes little more time
  // than a copy. Null: there is none.
  std::function<Run()> make_quick_run;
  // Tensors of the request whose bytes only run reads. If there are any, run can be called again for each request that
  // differs only in those bytes, with that request's payloads; otherwise at most once.
  std::vector<const v1::Tensor*> operands;
};

absl::StatusOr<Job> Prepare(const v1::ExplainRequest&, const Payloads&, const Limits&, v1::ExplainResponse*);
absl::StatusOr<Job> Prepare(const v1::AnalyzeRequest&, const Payloads&, const Limits&, v1::AnalyzeResponse*);
absl::StatusOr<Job> Prepare(const v1::CompareRequest&, const Payloads&, const Limits&, v1::CompareResponse*);
absl::StatusOr<Job> Prepare(const v1::PositionsRequest&, const Payloads&, const Limits&, v1::PositionsResponse*);
absl::StatusOr<Job> Prepare(const v1::ApplyRotaryRequest&, const Payloads&, const CallContext&,
                            v1::ApplyRotaryResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateTableRequest&, const Payloads&, const CallContext&,
                            v1::GenerateTableResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateEmbeddingRequest&, const Payloads&, const Limits&,
                            v1::GenerateEmbeddingResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateBiasRequest&, const Payloads&, const CallContext&,
                            v1::GenerateBiasResponse*);
absl::StatusOr<Job> Prepare(const v1::AddBiasRequest&, const Payloads&, const CallContext&, v1::AddBiasResponse*);
absl::StatusOr<Job> Prepare(const v1::RelativeScoresRequest&, const Payloads&, const Limits&,
                            v1::RelativeScoresResponse*);
absl::StatusOr<Job> Prepare(const v1::RelativeValuesRequest&, const Payloads&, const Limits&,
                            v1::RelativeValuesResponse*);
absl::StatusOr<Job> Prepare(const v1::DiagnoseRequest&, const Payloads&, const Limits&, v1::DiagnoseResponse*);
absl::StatusOr<Job> Prepare(const v1::DiagnoseBiasRequest&, const Payloads&, const Limits&, v1::DiagnoseBiasResponse*);

// An answer in tiles of rows, one job per tile. There is at least one tile, if only to carry info and shape of 0 rows.
struct TileStream {
  int64_t rows;
  int64_t rows_per_tile;  // >= 1
  // Returns the job of rows [row_begin, min(row_begin + rows_per_tile, rows)). `response`, of the stream's type, gets
  // row_begin, the tensors' headers, and, in the tile at row 0, the info. Needs neither the request nor its payloads.
  std::function<Job(int64_t row_begin, google::protobuf::Message* response)> tile;

  int64_t RowsAt(int64_t row_begin) const { return std::min(rows_per_tile, rows - row_begin); }
};
// Rows per tile: `asked`, otherwise as many as fill about 1 MiB; at least one, at most all. INVALID_ARGUMENT naming
// rows_per_tile if `asked` is below 1; RESOURCE_EXHAUSTED if a tile exceeds the limit for an answer.
absl::StatusOr<int64_t> RowsPerTile(std::optional<int64_t> asked, int64_t rows, int64_t row_bytes,
                                    const Limits& limits);

absl::StatusOr<TileStream> Prepare(const v1::StreamTableRequest&, const Payloads&, const Limits&);
absl::StatusOr<TileStream> Prepare(const v1::StreamBiasRequest&, const Payloads&, const Limits&);

// How a server schedules a unary RPC.
enum class Scheduling {
  // A small request may cost much: it is prepared and run in the pool's bulk lane.
  kPooled,
  // Like kPooled, and the call may wait for a file system: it runs on the stack of no other call.
  kReadsFiles,
  // A small request costs as much as its answer is large, except for biases over very long distances. It is prepared in
  // the pool's small-task lane, and moves to the bulk lane if its answer is large.
  kPreparesQuickly,
  // Like kPreparesQuickly, and a small request cannot cause much work or a large answer. If its plan is cached, it is
  // served on the receiving thread, which saves a handover to the pool.
  kAsSmallAsItsRequest,
  // Served on the receiving thread without admission, so that an overloaded server can still report its state.
  kImmediate,
};

// An operation serves one of these purposes. A server may allow each purpose to other callers.
enum class Purpose { kCompute, kDiagnose, kInfo };

// Copies a tensor's bytes to `out`, in place if they are already there, with the help of idle threads.
absl::Status CopyOperand(const Payloads& from, const v1::Tensor& tensor, std::byte* out, WorkPool& pool,
                         const Cancellation& cancelled);

struct UnaryOperation {
  using Prepare = std::function<absl::StatusOr<Job>(const google::protobuf::Message& request, const Payloads& payloads,
                                                    const CallContext& context, google::protobuf::Message* response)>;

  // Calls prepare(const Request&, const Payloads&, const CallContext&, Response*).
  template <typename Request, typename Response, typename TypedPrepare>
  static UnaryOperation Of(TypedPrepare prepare, Scheduling scheduling = Scheduling::kPooled,
                           Purpose purpose = Purpose::kCompute) {
    return {RpcOf(*Request::descriptor()),
            [prepare](const google::protobuf::Message& request, const Payloads& payloads, const CallContext& context,
                      google::protobuf::Message* response) -> absl::StatusOr<Job> {
              return prepare(static_cast<const Request&>(request), payloads, context, static_cast<Response*>(response));
            },
            scheduling, purpose};
  }

  const RpcDescription& rpc;
  Prepare prepare;  // null for GetServerInfo, which the process that serves it answers
  Scheduling scheduling;
  Purpose purpose = Purpose::kCompute;
};

struct TileOperation {
  using Prepare = std::function<absl::StatusOr<TileStream>(const google::protobuf::Message& request,
                                                           const Payloads& payloads, const Limits& limits)>;

  // Calls prepare(const Request&, const Payloads&, const Limits&).
  template <typename Request, typename TypedPrepare>
  static TileOperation Of(TypedPrepare prepare) {
    return {RpcOf(*Request::descriptor()),
            [prepare](const google::protobuf::Message& request, const Payloads& payloads,
                      const Limits& limits) -> absl::StatusOr<TileStream> {
              return prepare(static_cast<const Request&>(request), payloads, limits);
            }};
  }

  const RpcDescription& rpc;
  Prepare prepare;
};

// The operations that a process serves. StreamApplyRotary is not among them: see posenc/service/rotary_stream.h.
struct Operations {
  // Abort if there is none for the RPC.
  const UnaryOperation& UnaryOf(const RpcDescription& rpc) const;
  const TileOperation& TilesOf(const RpcDescription& rpc) const;

  std::vector<UnaryOperation> unary;
  std::vector<TileOperation> tiles;
};
const Operations& LibraryOperations();

// Writes the library's part of the server information: version, build, numerics, targets, methods, limits.
void DescribeLibrary(const Limits& limits, v1::GetServerInfoResponse* response);

}  // namespace posenc::wire
