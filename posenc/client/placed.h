// The service in process or on a server, wherever it takes less time: the bytes are the same.
#pragma once

#include <memory>

#include "posenc/client/backend.h"

namespace posenc {

enum class Placement {
  kLocal,
  kRemote,
  kAuto,  // call by call, by PlacementCosts
};

// What kAuto reckons with; the defaults were measured as docs/choosing.md says.
struct PlacementCosts {
  // Of an empty call to the server.
  double call_seconds = 200e-6;
  // Bytes a second of request and answer together, between here and the server. The default is a socket on one machine.
  double transport_bytes_per_second = 1.8e9;
  // How many times as fast as this process the server computes: its threads over ours, or a device that it has.
  double server_speed = 1;

  // Bytes of answer that this process computes in a second, by what is asked.
  double rotary_bytes_per_second = 12e9;     // and of an addition of biases
  double generated_bytes_per_second = 10e9;  // tables, embeddings, biases
  double relative_bytes_per_second = 500e6;  // terms with content: a product of two rows for an element or so
};

// Whether a call is faster on the server, where `rate` bytes of answer are computed here in a second:
//
//   call_seconds + (request_bytes + answer_bytes) / transport_bytes_per_second + here / server_speed  <  here
//   here = answer_bytes / rate
//
// So never where the server is no faster than this process, and for what is moved rather than computed only where the
// transport is faster than memory.
bool IsFasterRemote(const PlacementCosts& costs, double rate, double request_bytes, double answer_bytes);

// Under kAuto a call that explains is local, because it is small, and so is a stream, which is as cheap to make as to
// send; a call with regions is the server's, which has that memory. GetServerInfo and CheckHealth ask the server unless
// all is local.
class Placed final : public Backend {
 public:
  Placed(std::unique_ptr<Backend> local, std::unique_ptr<Backend> remote, Placement placement,
         const PlacementCosts& costs = {});

 private:
  absl::StatusOr<v1::GetServerInfoResponse> DoGetServerInfo(const v1::GetServerInfoRequest& request,
                                                            const CallOptions& options) override;
  absl::StatusOr<v1::ExplainResponse> DoExplain(const v1::ExplainRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::AnalyzeResponse> DoAnalyze(const v1::AnalyzeRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::ApplyRotaryResponse> DoApplyRotary(const v1::ApplyRotaryRequest& request,
                                                        const CallOptions& options) override;
  absl::StatusOr<v1::GenerateTableResponse> DoGenerateTable(const v1::GenerateTableRequest& request,
                                                            const CallOptions& options) override;
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                     const ChunkOptions& chunks, const CallOptions& options) override;
  absl::Status DoStreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink,
                            const CallOptions& options) override;
  absl::Status DoStreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options) override;
  absl::StatusOr<v1::GenerateEmbeddingResponse> DoGenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                    const CallOptions& options) override;
  absl::StatusOr<v1::GenerateBiasResponse> DoGenerateBias(const v1::GenerateBiasRequest& request,
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
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  // The backend for a call that computes `rate` bytes of answer a second in process.
  template <typename Request>
  Backend& For(const Request& request, const CallOptions& options, double rate);
  // For calls that do not depend on the request.
  Backend& Always() { return placement_ == Placement::kRemote ? *remote_ : *local_; }

  const std::unique_ptr<Backend> local_, remote_;
  const Placement placement_;
  const PlacementCosts costs_;
};

}  // namespace posenc
