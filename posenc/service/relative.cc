#include <memory>
#include <vector>

#include "posenc/base/fingerprint.h"
#include "posenc/base/memory_account.h"
#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/message_fingerprint.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/relative_method.h"
#include "posenc/mapping/relative_source.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/relative/relative_scores.h"
#include "posenc/relative/relative_values.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

absl::StatusOr<Layout> ReadLayout(v1::Layout layout) {
  if (layout == v1::LAYOUT_THD) {
    return InvalidArgument("UNSUPPORTED", "layout", v1::Layout_Name(layout), "must be LAYOUT_BSHD or LAYOUT_BHSD");
  }
  return Choose<v1::Layout, Layout>("layout", layout,
                                    {{v1::LAYOUT_BSHD, Layout::kBSHD}, {v1::LAYOUT_BHSD, Layout::kBHSD}});
}

// The answer's dtype: add_to's if present, otherwise the request's.
template <class Request>
absl::StatusOr<DType> ReadDType(const Request& request, const std::optional<TensorShape>& add_to) {
  if (!add_to) return ChooseType("dtype", request.dtype(), kOperandTypes);
  if (request.dtype() == v1::DATA_TYPE_UNSPECIFIED) return add_to->dtype;
  POSENC_ASSIGN_OR_RETURN(const DType dtype, Choose("dtype", request.dtype(), kDataTypes));
  if (dtype == add_to->dtype) return dtype;
  return InvalidArgument("CONFLICT", "dtype", posenc::Name(dtype), "must be add_to's type, or add_to absent");
}

template <class Method>
void WriteInfo(std::string_view name, const Method& method, const ResolvedTerms& resolved, bool return_plan,
               v1::AnswerInfo* info) {
  WriteCommonInfo(resolved.precision, resolved.notes, info);
  v1::Plan plan;
  WriteRelativeMethod(method, plan.mutable_relative());
  Fingerprint fingerprint;
  fingerprint.Add(name);
  AddMessage(plan.relative(), fingerprint);
  fingerprint.Add(info->precision().SerializeAsString());
  info->set_plan_fingerprint(fingerprint.Digest());
  if (!return_plan) return;
  plan.set_softmax_scale_factor(1);
  RequireMemory(2 * static_cast<int64_t>(plan.ByteSizeLong()));  // messages of different arenas are copied
  info->mutable_plan()->Swap(&plan);
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::RelativeScoresRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::RelativeScoresResponse* response) {
  const Reader reader{payloads, limits};
  RelativeScoresCall call;
  POSENC_ASSIGN_OR_RETURN(ResolvedTerms resolved, ResolveTerms(reader, request.method(), request.precision()));
  call.method = std::move(resolved.method);
  call.precision = resolved.precision;
  POSENC_ASSIGN_OR_RETURN(call.layout, ReadLayout(request.layout()));
  POSENC_ASSIGN_OR_RETURN(call.geometry, ReadGeometry(reader, request.geometry()));
  if (request.has_mask()) {
    POSENC_ASSIGN_OR_RETURN(call.mask, ReadMask(reader, request.mask()));
  }
  if (!request.has_content()) {
    return InvalidArgument("MISSING", "content", "", "must be given: whether q . k^T is part of the answer");
  }
  call.content = request.content();
  if (request.has_scale()) call.scale = request.scale();
  if (!request.has_q()) return InvalidArgument("MISSING", "q", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(call.q, reader.Shape("q", request.q()));
  if (request.has_k()) {
    POSENC_ASSIGN_OR_RETURN(call.k, reader.Shape("k", request.k()));
  }
  if (request.has_add_to()) {
    POSENC_ASSIGN_OR_RETURN(call.add_to, reader.Shape("add_to", request.add_to()));
  }
  POSENC_ASSIGN_OR_RETURN(call.dtype, ReadDType(request, call.add_to));
  if (resolved.model) POSENC_RETURN_IF_ERROR(CheckCall(*resolved.model, call));
  auto created = RelativeScores::Create(std::move(call), limits);
  if (!created.ok()) return created.status();
  const auto scores = std::make_shared<const RelativeScores>(*std::move(created));

  WriteInfo("relative scores", scores->method(), resolved, request.hints().return_plan(), response->mutable_info());
  response->set_scale(scores->scale());
  WriteShape(scores->shape(), response->mutable_scores());
  Job job;
  POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(),
                          reader.Place("output", OutputOf(request), scores->bytes(), response->mutable_scores()));
  job.run = [scores, &request](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool& pool,
                               const Cancellation& cancelled) {
    const std::vector<std::byte> q = CopyOf(from, request.q()), k = CopyOf(from, request.k());
    if (request.has_add_to()) {
      POSENC_RETURN_IF_ERROR(CopyOperand(from, request.add_to(), buffers[0], pool, cancelled));
    }
    return scores->WriteScores(
        {.q = q.data(), .k = k.data(), .add_to = request.has_add_to() ? buffers[0] : nullptr, .out = buffers[0]}, pool,
        cancelled);
  };
  return job;
}

absl::StatusOr<Job> Prepare(const v1::RelativeValuesRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::RelativeValuesResponse* response) {
  const Reader reader{payloads, limits};
  RelativeValuesCall call;
  if (!request.has_shaw()) return InvalidArgument("MISSING", "shaw", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(ResolvedTerms resolved, ResolveValues(reader, request.shaw(), request.precision()));
  call.shaw = std::get<ShawSettings>(std::move(resolved.method));
  call.precision = resolved.precision;
  POSENC_ASSIGN_OR_RETURN(call.layout, ReadLayout(request.layout()));
  POSENC_ASSIGN_OR_RETURN(call.geometry, ReadGeometry(reader, request.geometry()));
  if (!request.has_probabilities()) return InvalidArgument("MISSING", "probabilities", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(call.probabilities, reader.Shape("probabilities", request.probabilities()));
  if (request.has_add_to()) {
    POSENC_ASSIGN_OR_RETURN(call.add_to, reader.Shape("add_to", request.add_to()));
  }
  POSENC_ASSIGN_OR_RETURN(call.dtype, ReadDType(request, call.add_to));
  auto created = RelativeValues::Create(std::move(call), limits);
  if (!created.ok()) return created.status();
  const auto values = std::make_shared<const RelativeValues>(*std::move(created));

  WriteInfo("relative values", values->shaw(), resolved, request.hints().return_plan(), response->mutable_info());
  WriteShape(values->shape(), response->mutable_values());
  Job job;
  POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(),
                          reader.Place("output", OutputOf(request), values->bytes(), response->mutable_values()));
  job.run = [values, &request](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool& pool,
                               const Cancellation& cancelled) {
    const std::vector<std::byte> probabilities = CopyOf(from, request.probabilities());
    if (request.has_add_to()) {
      POSENC_RETURN_IF_ERROR(CopyOperand(from, request.add_to(), buffers[0], pool, cancelled));
    }
    return values->WriteValues(probabilities.data(), request.has_add_to() ? buffers[0] : nullptr, buffers[0], pool,
                               cancelled);
  };
  return job;
}

}  // namespace posenc::wire
