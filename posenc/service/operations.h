// What each RPC does, without gRPC: from a parsed request to a job that fills its answer's tensors.
//
// Two steps, because the answer's sizes must be known (and charged, and allocated) before anything is computed:
// Prepare() validates, plans, and fills the response but for the tensors' data; Job::run computes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/payloads.h"

namespace posenc::wire {

struct Job {
  std::vector<Output> outputs;  // in the order of their field numbers in the response
  // Of answers whose message takes long to find: fills the response, which has no outputs then, before it is laid out.
  // Null: it is filled already. Otherwise as run.
  std::function<absl::Status(WorkPool& pool, const Cancellation& cancelled)> decide;
  // Writes outputs[n].bytes bytes to buffers[n], which is outputs[n].region() unless that is null. On any thread;
  // request and response must outlive it. The buffers need no alignment. Null: there are no outputs.
  std::function<absl::Status(const Payloads& payloads, absl::Span<std::byte* const> buffers, WorkPool& pool,
                             const Cancellation& cancelled)>
      run;
  // Tensors of the request whose bytes run alone reads. If there are any, run can be called for every request that
  // differs in nothing but those bytes, with that one's payloads; else at most once.
  std::vector<const v1::Tensor*> operands;
};

absl::StatusOr<Job> Prepare(const v1::ExplainRequest&, const Payloads&, const Limits&, v1::ExplainResponse*);
absl::StatusOr<Job> Prepare(const v1::AnalyzeRequest&, const Payloads&, const Limits&, v1::AnalyzeResponse*);
absl::StatusOr<Job> Prepare(const v1::ApplyRotaryRequest&, const Payloads&, const Limits&, v1::ApplyRotaryResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateTableRequest&, const Payloads&, const Limits&,
                            v1::GenerateTableResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateEmbeddingRequest&, const Payloads&, const Limits&,
                            v1::GenerateEmbeddingResponse*);
absl::StatusOr<Job> Prepare(const v1::GenerateBiasRequest&, const Payloads&, const Limits&, v1::GenerateBiasResponse*);
absl::StatusOr<Job> Prepare(const v1::AddBiasRequest&, const Payloads&, const Limits&, v1::AddBiasResponse*);
absl::StatusOr<Job> Prepare(const v1::RelativeScoresRequest&, const Payloads&, const Limits&,
                            v1::RelativeScoresResponse*);
absl::StatusOr<Job> Prepare(const v1::RelativeValuesRequest&, const Payloads&, const Limits&,
                            v1::RelativeValuesResponse*);
absl::StatusOr<Job> Prepare(const v1::DiagnoseRequest&, const Payloads&, const Limits&, v1::DiagnoseResponse*);
absl::StatusOr<Job> Prepare(const v1::DiagnoseBiasRequest&, const Payloads&, const Limits&, v1::DiagnoseBiasResponse*);

// An answer in tiles of rows: one job a tile. There is at least one, which brings info and shape, if of no rows.
struct TileStream {
  int64_t rows;
  int64_t rows_per_tile;   // >= 1
  int64_t held_bytes = 0;  // kept until the last tile, beside the request
  // The job of rows [row_begin, min(row_begin + rows_per_tile, rows)); `response`, of the stream's type, gets
  // row_begin, the tensors' headers, and, in the tile at row 0, the info. The request and its payloads are no longer
  // needed.
  std::function<Job(int64_t row_begin, google::protobuf::Message* response)> tile;

  int64_t RowsAt(int64_t row_begin) const { return std::min(rows_per_tile, rows - row_begin); }
};
absl::StatusOr<TileStream> Prepare(const v1::StreamTableRequest&, const Payloads&, const Limits&);
absl::StatusOr<TileStream> Prepare(const v1::StreamBiasRequest&, const Payloads&, const Limits&);

// The part of the server's information that is the library's: version, build, numerics, targets, methods, limits.
void DescribeLibrary(const Limits& limits, v1::GetServerInfoResponse* response);

}  // namespace posenc::wire
