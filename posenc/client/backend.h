// The service's methods, wherever they run: Client asks a server, InProcess computes here.
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
  // For the whole call, retries and waits included. Absent: the backend's own default.
  std::optional<Duration> timeout;

  // Tensors may lie in the caller's memory, beside the messages; a server's are then sent from there without a copy and
  // received with one, and in process there is none. For all methods with tensors but streams.
  //
  // Tensors of the request, whose data is empty:   {{&request.q().tensor(), q_bytes}, ...}
  std::vector<wire::TensorView> inputs;
  // Where the answer's tensors go, in the order of their fields (ApplyRotary: q, k; GenerateTable: cos, sin); each has
  // exactly the tensor's bytes, and that data of the response stays empty. Null, or left out: into the response. One
  // may be the memory of an input or overlap it (in place). Where a call fails, what is in the outputs is undefined;
  // with a server they are as they were.
  std::vector<absl::Span<std::byte>> outputs;
};

// As in grpc.health.v1, with its numbers.
enum class ServingStatus { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// Called with each tile, in order; a status other than OK ends the stream and is its result.
using TileSink = absl::FunctionRef<absl::Status(const v1::StreamTableResponse& tile)>;
using BiasTileSink = absl::FunctionRef<absl::Status(const v1::StreamBiasResponse& tile)>;

// A tensor in the caller's memory, of the type and shape that a stream's header says.
struct TensorMemory {
  const void* input = nullptr;
  // Of the same size: the input itself (in place), else it must not overlap any input or the other output.
  void* output = nullptr;
};
struct RotaryMemory {
  TensorMemory q, k;
};
struct ChunkOptions {
  // Of one message, rounded down to whole head rows; at least one. At most ServerLimits.max_request_bytes, and a
  // quarter of max_in_flight_bytes is wise.
  int64_t bytes = int64_t{4} << 20;
  // Chunks sent and not yet answered. >= 1.
  int in_flight = 4;
};

// Errors look alike from every backend: code, message and DetailsOf() (posenc/base/status.h). Thread-safe.
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
  // Tensors of any size. The header is an ApplyRotaryRequest whose tensors have neither data nor region. After an error
  // each head row of the outputs is either rotated or as it was.
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
  // `service` is a fully qualified name, or empty: the process as a whole.
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
