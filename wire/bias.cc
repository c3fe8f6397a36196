#include <memory>

#include "posenc/generate_bias.h"
#include "wire/bias_geometry.h"
#include "wire/bias_source.h"
#include "wire/operations.h"
#include "wire/read.h"

namespace posenc::wire {
namespace {

// What both requests share, but for form, type and scores.
template <class Request>
absl::StatusOr<GenerateBias> ReadCall(const Reader& reader, const Request& request, const ResolvedBias& resolved) {
  GenerateBias call;
  call.method = resolved.method;
  call.precision = resolved.precision;
  POSENC_ASSIGN_OR_RETURN(call.geometry, ReadGeometry(reader, request.geometry()));
  if (request.has_mask()) {
    POSENC_ASSIGN_OR_RETURN(call.mask, ReadMask(reader, request.mask()));
  }
  return call;
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::GenerateBiasRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::GenerateBiasResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const ResolvedBias resolved, ResolveBias(reader, request.method(), request.precision()));
  POSENC_ASSIGN_OR_RETURN(GenerateBias call, ReadCall(reader, request, resolved));
  POSENC_ASSIGN_OR_RETURN(call.form,
                          (Choose<v1::BiasForm, BiasForm>("form", request.form(),
                                                          {{v1::BIAS_FORM_DENSE, BiasForm::kDense},
                                                           {v1::BIAS_FORM_COMPACT, BiasForm::kCompact},
                                                           {v1::BIAS_FORM_INDEX, BiasForm::kIndex},
                                                           {v1::BIAS_FORM_COMPACT_INDEX, BiasForm::kCompactIndex}})));
  POSENC_ASSIGN_OR_RETURN(call.dtype, Choose("dtype", request.dtype(), kDataTypes));
  auto created = BiasGeneration::Create(std::move(call), limits);
  if (!created.ok()) return created.status();
  const auto bias = std::make_shared<const BiasGeneration>(*std::move(created));

  WriteBiasInfo(resolved, bias->method(), BiasUse::kAlone, response->mutable_info());
  if (request.hints().return_plan()) WriteBiasPlan(bias->method(), bias->slopes(), response->mutable_info());
  WriteShape(bias->shape(), response->mutable_bias());
  Job job;
  POSENC_ASSIGN_OR_RETURN(
      job.outputs.emplace_back(),
      reader.Place("output", OutputOf(request), *ByteSize("bias", bias->shape(), limits), response->mutable_bias()));
  job.run = [bias](absl::Span<std::byte* const> buffers, WorkPool& pool, const Cancellation& cancelled) {
    return bias->Run(nullptr, buffers[0], pool, cancelled);
  };
  return job;
}

absl::StatusOr<Job> Prepare(const v1::AddBiasRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::AddBiasResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const ResolvedBias resolved, ResolveBias(reader, request.method(), request.precision()));
  if (!request.has_scores()) return InvalidArgument("MISSING", "scores", "", "is required");
  POSENC_ASSIGN_OR_RETURN(GenerateBias call, ReadCall(reader, request, resolved));
  POSENC_ASSIGN_OR_RETURN(call.scores, reader.Shape("scores", request.scores()));
  call.dtype = call.scores->dtype;
  auto created = BiasGeneration::Create(std::move(call), limits);
  if (!created.ok()) return created.status();
  const auto bias = std::make_shared<const BiasGeneration>(*std::move(created));

  WriteBiasInfo(resolved, bias->method(), BiasUse::kAdded, response->mutable_info());
  if (request.hints().return_plan()) WriteBiasPlan(bias->method(), bias->slopes(), response->mutable_info());
  WriteShape(bias->shape(), response->mutable_scores());
  Job job;
  POSENC_ASSIGN_OR_RETURN(
      job.outputs.emplace_back(),
      reader.Place("output", OutputOf(request), payloads.Size(request.scores()), response->mutable_scores()));
  job.run = [bias, scores = &request.scores(), &payloads](absl::Span<std::byte* const> buffers, WorkPool& pool,
                                                          const Cancellation& cancelled) {
    payloads.CopyTo(*scores, buffers[0]);
    return bias->Run(buffers[0], buffers[0], pool, cancelled);
  };
  return job;
}

}  // namespace posenc::wire
