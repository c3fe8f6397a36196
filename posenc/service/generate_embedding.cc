#include "posenc/embedding/generate_embedding.h"

#include <memory>

#include "posenc/mapping/embedding_method.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/operations.h"

namespace posenc::wire {

absl::StatusOr<Job> Prepare(const v1::GenerateEmbeddingRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::GenerateEmbeddingResponse* response) {
  const Reader reader{payloads, limits};
  GenerateEmbedding call;
  POSENC_ASSIGN_OR_RETURN(OfModel<EmbeddingMethod> resolved, ResolveEmbedding(reader, request));
  call.method = std::move(resolved.settings);
  POSENC_ASSIGN_OR_RETURN(call.positions, reader.ReadPositions(request.positions()));
  if (request.has_count()) call.count = request.count();
  const v1::Tensor* add_to = request.has_add_to() ? &request.add_to() : nullptr;
  if (add_to != nullptr) {
    POSENC_ASSIGN_OR_RETURN(call.add_to, reader.Shape("add_to", *add_to));
    if (request.dtype() != v1::DATA_TYPE_UNSPECIFIED && request.dtype() != add_to->dtype()) {
      return InvalidArgument("CONFLICT", "dtype", v1::DataType_Name(request.dtype()),
                             "must be absent or add_to's type");
    }
    call.dtype = call.add_to->dtype;
  } else {
    POSENC_ASSIGN_OR_RETURN(call.dtype, ChooseType("dtype", request.dtype(), kTableTypes));
  }
  POSENC_ASSIGN_OR_RETURN(call.precision, ReadPrecision(request.precision(), resolved.precision));
  const Precision precision = call.precision;
  v1::Plan plan;
  const bool has_plan = request.hints().return_plan() && WriteEmbeddingPlan(call.method, &plan);
  auto created = EmbeddingGeneration::Create(std::move(call), limits);
  POSENC_RETURN_IF_ERROR(created.status());
  const auto generation = std::make_shared<const EmbeddingGeneration>(*std::move(created));

  WriteCommonInfo(precision, resolved.notes, response->mutable_info());
  response->mutable_info()->set_plan_fingerprint(generation->Fingerprint());
  if (has_plan) response->mutable_info()->mutable_plan()->Swap(&plan);
  WriteShape(generation->shape(), response->mutable_embedding());
  Job job;
  POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(), reader.Place("output", OutputOf(request), generation->bytes(),
                                                                   response->mutable_embedding()));
  job.run = [generation, add_to](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool& pool,
                                 const Cancellation& cancelled) {
    if (add_to != nullptr) POSENC_RETURN_IF_ERROR(CopyOperand(from, *add_to, buffers[0], pool, cancelled));
    return generation->Write(add_to != nullptr ? buffers[0] : nullptr, buffers[0], pool, cancelled);
  };
  return job;
}

}  // namespace posenc::wire
