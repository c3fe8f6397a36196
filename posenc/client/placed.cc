#include "posenc/client/placed.h"

#include <algorithm>
#include <utility>

#include "posenc/client/tensor_memory.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/shared_memory.h"

namespace posenc {
namespace {

// Where a request does not say them.
constexpr double kWidth = 128;
constexpr double kAssumedHeads = 32;
constexpr double kElementBytes = 2;

double BytesOf(const v1::Tensor& tensor, const CallOptions& options) {
  return static_cast<double>(wire::BesideMessage(options.inputs).Size(tensor));
}

double Elements(const v1::Tensor& tensor) {
  double elements = 1;
  for (const int64_t dimension : tensor.shape()) elements *= static_cast<double>(dimension);
  return elements;
}

double Last(const v1::Tensor& tensor, double otherwise) {
  return tensor.shape().empty() ? otherwise : static_cast<double>(*tensor.shape().rbegin());
}

// Bytes of the answer where the caller's memory for it does not tell, as far as the request shows them: a wrong guess
// costs time, never a byte.
double AnswerBytes(const v1::ApplyRotaryRequest& request, const CallOptions& options) {
  return BytesOf(request.q().tensor(), options) + BytesOf(request.k().tensor(), options);
}

double AnswerBytes(const v1::AddBiasRequest& request, const CallOptions& options) {
  return BytesOf(request.scores(), options);
}

double Rows(const v1::Positions& positions, int64_t count) {
  return positions.has_ids() ? Elements(positions.ids()) : static_cast<double>(count);
}

double AnswerBytes(const v1::GenerateTableRequest& request, const CallOptions&) {
  return Rows(request.positions(), request.count()) * kWidth * kElementBytes;
}

double AnswerBytes(const v1::GenerateEmbeddingRequest& request, const CallOptions& options) {
  if (request.has_add_to()) return BytesOf(request.add_to(), options);
  return Rows(request.positions(), request.count()) * kWidth * kElementBytes;
}

double AnswerBytes(const v1::GenerateBiasRequest& request, const CallOptions&) {
  const auto keys = static_cast<double>(request.geometry().key_length());
  const bool dense = request.form() == v1::BIAS_FORM_DENSE || request.form() == v1::BIAS_FORM_INDEX;
  return (dense ? static_cast<double>(request.geometry().query_length()) : 1) * keys * kAssumedHeads * kElementBytes;
}

double AnswerBytes(const v1::RelativeScoresRequest& request, const CallOptions&) {
  const bool heads_first = request.layout() == v1::LAYOUT_BHSD;
  const v1::Tensor& keys = request.has_k() ? request.k() : request.q();
  const double key_length = keys.shape_size() == 4 ? static_cast<double>(keys.shape(heads_first ? 2 : 1)) : 0;
  return Elements(request.q()) / std::max(Last(request.q(), 1), 1.0) * key_length * kElementBytes;
}

double AnswerBytes(const v1::RelativeValuesRequest& request, const CallOptions&) {
  const double rows = Elements(request.probabilities()) / std::max(Last(request.probabilities(), 1), 1.0);
  return rows * Last(request.shaw().table(), kWidth) * kElementBytes;
}

}  // namespace

bool IsFasterRemote(const PlacementCosts& costs, double rate, double request_bytes, double answer_bytes) {
  const double local = answer_bytes / rate;
  const double transport = (request_bytes + answer_bytes) / costs.transport_bytes_per_second;
  return costs.call_seconds + transport + local / costs.server_speed < local;
}

Placed::Placed(std::unique_ptr<Backend> local, std::unique_ptr<Backend> remote, Placement placement,
               const PlacementCosts& costs)
    : local_(std::move(local)), remote_(std::move(remote)), placement_(placement), costs_(costs) {}

template <typename Request>
Backend& Placed::For(const Request& request, const CallOptions& options, double rate) {
  if (placement_ != Placement::kAuto) return Always();
  if (wire::HasRegions(request)) return *remote_;  // the server has that memory
  double request_bytes = 0, answer_bytes = 0;
  ForEachTensor(request, [&](const v1::Tensor& tensor) { request_bytes += BytesOf(tensor, options); });
  for (const absl::Span<std::byte> output : options.outputs) answer_bytes += static_cast<double>(output.size());
  if (answer_bytes == 0) answer_bytes = AnswerBytes(request, options);
  return IsFasterRemote(costs_, rate, request_bytes, answer_bytes) ? *remote_ : *local_;
}

absl::StatusOr<v1::GetServerInfoResponse> Placed::DoGetServerInfo(const v1::GetServerInfoRequest& request,
                                                                  const CallOptions& options) {
  return (placement_ == Placement::kLocal ? local_ : remote_)->GetServerInfo(request, options);
}

absl::StatusOr<v1::ExplainResponse> Placed::DoExplain(const v1::ExplainRequest& request, const CallOptions& options) {
  return Always().Explain(request, options);
}

absl::StatusOr<v1::AnalyzeResponse> Placed::DoAnalyze(const v1::AnalyzeRequest& request, const CallOptions& options) {
  return Always().Analyze(request, options);
}

absl::StatusOr<v1::ApplyRotaryResponse> Placed::DoApplyRotary(const v1::ApplyRotaryRequest& request,
                                                              const CallOptions& options) {
  return For(request, options, costs_.rotary_bytes_per_second).ApplyRotary(request, options);
}

absl::StatusOr<v1::GenerateTableResponse> Placed::DoGenerateTable(const v1::GenerateTableRequest& request,
                                                                  const CallOptions& options) {
  return For(request, options, costs_.generated_bytes_per_second).GenerateTable(request, options);
}

absl::StatusOr<v1::AnswerInfo> Placed::DoStreamApplyRotary(const v1::ApplyRotaryRequest& header,
                                                           const RotaryMemory& memory, const ChunkOptions& chunks,
                                                           const CallOptions& options) {
  return Always().StreamApplyRotary(header, memory, chunks, options);
}

absl::Status Placed::DoStreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink, const CallOptions& options) {
  return Always().StreamBias(request, sink, options);
}

absl::Status Placed::DoStreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options) {
  return Always().StreamTable(request, sink, options);
}

absl::StatusOr<v1::GenerateEmbeddingResponse> Placed::DoGenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                          const CallOptions& options) {
  return For(request, options, costs_.generated_bytes_per_second).GenerateEmbedding(request, options);
}

absl::StatusOr<v1::GenerateBiasResponse> Placed::DoGenerateBias(const v1::GenerateBiasRequest& request,
                                                                const CallOptions& options) {
  return For(request, options, costs_.generated_bytes_per_second).GenerateBias(request, options);
}

absl::StatusOr<v1::AddBiasResponse> Placed::DoAddBias(const v1::AddBiasRequest& request, const CallOptions& options) {
  return For(request, options, costs_.rotary_bytes_per_second).AddBias(request, options);
}

absl::StatusOr<v1::RelativeScoresResponse> Placed::DoRelativeScores(const v1::RelativeScoresRequest& request,
                                                                    const CallOptions& options) {
  return For(request, options, costs_.relative_bytes_per_second).RelativeScores(request, options);
}

absl::StatusOr<v1::RelativeValuesResponse> Placed::DoRelativeValues(const v1::RelativeValuesRequest& request,
                                                                    const CallOptions& options) {
  return For(request, options, costs_.relative_bytes_per_second).RelativeValues(request, options);
}

absl::StatusOr<v1::DiagnoseResponse> Placed::DoDiagnose(const v1::DiagnoseRequest& request,
                                                        const CallOptions& options) {
  const bool shared = placement_ == Placement::kAuto && wire::HasRegions(request);
  return (shared ? *remote_ : Always()).Diagnose(request, options);
}

absl::StatusOr<v1::DiagnoseBiasResponse> Placed::DoDiagnoseBias(const v1::DiagnoseBiasRequest& request,
                                                                const CallOptions& options) {
  const bool shared = placement_ == Placement::kAuto && wire::HasRegions(request);
  return (shared ? *remote_ : Always()).DiagnoseBias(request, options);
}

absl::StatusOr<ServingStatus> Placed::DoCheckHealth(const std::string& service, const CallOptions& options) {
  return (placement_ == Placement::kLocal ? local_ : remote_)->CheckHealth(service, options);
}

}  // namespace posenc
