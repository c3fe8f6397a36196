// The service without a server: computes in the calling thread and a thread pool.
#pragma once

#include <cstddef>

#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/client/backend.h"

namespace posenc {

struct InProcessOptions {
  Limits limits;
  // Number of computing threads, including the caller's; 0: as many as the cgroup's quota and the affinity mask allow.
  size_t threads = 0;
  // Default for calls without CallOptions.timeout.
  Duration timeout = Duration::max();
};

// Options for a program that has the machine to itself: half of its memory as limits, instead of a server's low
// defaults.
InProcessOptions WholeMachine();

class InProcess final : public Backend {
 public:
  explicit InProcess(const InProcessOptions& options = {});

 private:
  absl::StatusOr<v1::GetServerInfoResponse> DoGetServerInfo(const v1::GetServerInfoRequest& request,
                                                            const CallOptions& options) override;
  absl::StatusOr<v1::ExplainResponse> DoExplain(const v1::ExplainRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::AnalyzeResponse> DoAnalyze(const v1::AnalyzeRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::ApplyRotaryResponse> DoApplyRotary(const v1::ApplyRotaryRequest& request,
                                                        const CallOptions& options) override;
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                     const ChunkOptions& chunks, const CallOptions& options) override;
  absl::StatusOr<v1::GenerateTableResponse> DoGenerateTable(const v1::GenerateTableRequest& request,
                                                            const CallOptions& options) override;
  absl::Status DoStreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options) override;
  absl::StatusOr<v1::GenerateEmbeddingResponse> DoGenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                    const CallOptions& options) override;
  absl::StatusOr<v1::GenerateBiasResponse> DoGenerateBias(const v1::GenerateBiasRequest& request,
                                                          const CallOptions& options) override;
  absl::Status DoStreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink,
                            const CallOptions& options) override;
  absl::StatusOr<v1::AddBiasResponse> DoAddBias(const v1::AddBiasRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::RelativeScoresResponse> DoRelativeScores(const v1::RelativeScoresRequest& request,
                                                              const CallOptions& options) override;
  absl::StatusOr<v1::RelativeValuesResponse> DoRelativeValues(const v1::RelativeValuesRequest& request,
                                                              const CallOptions& options) override;
  absl::StatusOr<v1::DiagnoseResponse> DoDiagnose(const v1::DiagnoseRequest& request,
                                                  const CallOptions& options) override;
  absl::StatusOr<v1::DiagnoseBiasResponse> DoDiagnoseBias(const v1::DiagnoseBiasRequest& request,
                                                          const CallOptions& options) override;
  // Always returns kServing.
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  template <typename Response, typename Request>
  absl::StatusOr<Response> Unary(const Request& request, const CallOptions& options);
  template <typename Response, typename Request, typename Sink>
  absl::Status Tiles(const Request& request, Sink sink, const CallOptions& options);
  Cancellation DeadlineOf(const CallOptions& options) const;

  const InProcessOptions options_;
  WorkPool pool_;
};

}  // namespace posenc
