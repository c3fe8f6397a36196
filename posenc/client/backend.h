// Interface to the service's methods: Client sends them to a server, InProcess computes them in this process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client/retry.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/payloads.h"

namespace posenc {

struct CallOptions {
  // Limit for the whole call, including retries and waits. Absent: the backend's own default.
  std::optional<Duration> timeout;

  // Tensors in the caller's memory instead of the messages. With a server they are sent without a copy and received
  // with one; in process there is no copy. For all methods with tensors except streams.
  //
  // Tensors of the request, whose data is empty:   {{&request.q().tensor(), q_bytes}, ...}
  std::vector<wire::TensorView> inputs;
  // Destinations of the answer's tensors, in the order of their fields (ApplyRotary: q, k; GenerateTable: cos, sin).
  // Each has exactly the tensor's bytes; that tensor's data stays empty in the response. Null or left out: the tensor
  // goes into the response. An output may equal or overlap an input (in place). If a call fails, the outputs are
  // undefined in process and unchanged with a server.
  std::vector<absl::Span<std::byte>> outputs;
};

// Health status with the names and numbers of grpc.health.v1.
enum class ServingStatus { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// Callback for each tile, in order. A status other than OK ends the stream and becomes its result.
using TileSink = absl::FunctionRef<absl::Status(const v1::StreamTableResponse& tile)>;
using BiasTileSink = absl::FunctionRef<absl::Status(const v1::StreamBiasResponse& tile)>;

// A tensor in the caller's memory, of the type and shape in the stream's header. Not owned.
struct TensorMemory {
  const void* input = nullptr;
  // Same size as the input: either the input itself (in place), or no overlap with any input or the other output.
  void* output = nullptr;
};
struct RotaryMemory {
  TensorMemory q, k;
};
struct ChunkOptions {
  // Bytes per message, rounded down to whole head rows; at least one row. At most ServerLimits.max_request_bytes; a
  // quarter of max_in_flight_bytes or less is recommended.
  int64_t bytes = int64_t{4} << 20;
  // Chunks in flight: sent and not yet answered. >= 1.
  int in_flight = 4;
};

// All backends return the same errors: code, message and DetailsOf() (posenc/base/status.h). Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const v1::GetServerInfoRequest& request = {},
                                                          const CallOptions& options = {}) {
    return DoGetServerInfo(request, options);
  }
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request, const CallOptions& options = {}) {
    return DoExplain(request, options);
  }
  absl::StatusOr<v1::AnalyzeResponse> Analyze(const v1::AnalyzeRequest& request, const CallOptions& options = {}) {
    return DoAnalyze(request, options);
  }
  absl::StatusOr<v1::ApplyRotaryResponse> ApplyRotary(const v1::ApplyRotaryRequest& request,
                                                      const CallOptions& options = {}) {
    return DoApplyRotary(request, options);
  }
  // Rotates tensors of any size. The header is an ApplyRotaryRequest whose tensors have neither data nor region. After
  // an error each head row of the outputs is either rotated or unchanged.
  absl::StatusOr<v1::AnswerInfo> StreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                   const ChunkOptions& chunks = {}, const CallOptions& options = {}) {
    return DoStreamApplyRotary(header, memory, chunks, options);
  }
  absl::StatusOr<v1::GenerateTableResponse> GenerateTable(const v1::GenerateTableRequest& request,
                                                          const CallOptions& options = {}) {
    return DoGenerateTable(request, options);
  }
  absl::Status StreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options = {}) {
    return DoStreamTable(request, sink, options);
  }
  absl::StatusOr<v1::GenerateEmbeddingResponse> GenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                  const CallOptions& options = {}) {
    return DoGenerateEmbedding(request, options);
  }
  absl::StatusOr<v1::GenerateBiasResponse> GenerateBias(const v1::GenerateBiasRequest& request,
                                                        const CallOptions& options = {}) {
    return DoGenerateBias(request, options);
  }
  absl::Status StreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink, const CallOptions& options = {}) {
    return DoStreamBias(request, sink, options);
  }
  absl::StatusOr<v1::AddBiasResponse> AddBias(const v1::AddBiasRequest& request, const CallOptions& options = {}) {
    return DoAddBias(request, options);
  }
  absl::StatusOr<v1::RelativeScoresResponse> RelativeScores(const v1::RelativeScoresRequest& request,
                                                            const CallOptions& options = {}) {
    return DoRelativeScores(request, options);
  }
  absl::StatusOr<v1::RelativeValuesResponse> RelativeValues(const v1::RelativeValuesRequest& request,
                                                            const CallOptions& options = {}) {
    return DoRelativeValues(request, options);
  }
  absl::StatusOr<v1::DiagnoseResponse> Diagnose(const v1::DiagnoseRequest& request, const CallOptions& options = {}) {
    return DoDiagnose(request, options);
  }
  absl::StatusOr<v1::DiagnoseBiasResponse> DiagnoseBias(const v1::DiagnoseBiasRequest& request,
                                                        const CallOptions& options = {}) {
    return DoDiagnoseBias(request, options);
  }
  // `service` is a fully qualified name; empty: the process as a whole.
  absl::StatusOr<ServingStatus> CheckHealth(const std::string& service = "", const CallOptions& options = {}) {
    return DoCheckHealth(service, options);
  }

 private:
  virtual absl::StatusOr<v1::GetServerInfoResponse> DoGetServerInfo(const v1::GetServerInfoRequest&,
                                                                    const CallOptions&) = 0;
  virtual absl::StatusOr<v1::ExplainResponse> DoExplain(const v1::ExplainRequest&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::AnalyzeResponse> DoAnalyze(const v1::AnalyzeRequest&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::ApplyRotaryResponse> DoApplyRotary(const v1::ApplyRotaryRequest&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest&, const RotaryMemory&,
                                                             const ChunkOptions&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::GenerateTableResponse> DoGenerateTable(const v1::GenerateTableRequest&,
                                                                    const CallOptions&) = 0;
  virtual absl::Status DoStreamTable(const v1::StreamTableRequest&, TileSink, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::GenerateEmbeddingResponse> DoGenerateEmbedding(const v1::GenerateEmbeddingRequest&,
                                                                            const CallOptions&) = 0;
  virtual absl::StatusOr<v1::GenerateBiasResponse> DoGenerateBias(const v1::GenerateBiasRequest&,
                                                                  const CallOptions&) = 0;
  virtual absl::Status DoStreamBias(const v1::StreamBiasRequest&, BiasTileSink, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::AddBiasResponse> DoAddBias(const v1::AddBiasRequest&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::RelativeScoresResponse> DoRelativeScores(const v1::RelativeScoresRequest&,
                                                                      const CallOptions&) = 0;
  virtual absl::StatusOr<v1::RelativeValuesResponse> DoRelativeValues(const v1::RelativeValuesRequest&,
                                                                      const CallOptions&) = 0;
  virtual absl::StatusOr<v1::DiagnoseResponse> DoDiagnose(const v1::DiagnoseRequest&, const CallOptions&) = 0;
  virtual absl::StatusOr<v1::DiagnoseBiasResponse> DoDiagnoseBias(const v1::DiagnoseBiasRequest&,
                                                                  const CallOptions&) = 0;
  virtual absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions&) = 0;
};

}  // namespace posenc
