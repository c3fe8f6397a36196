#include <memory>
#include <vector>

#include "posenc/apply_rotary.h"
#include "wire/operations.h"
#include "wire/read.h"
#include "wire/rotary_source.h"

namespace posenc::wire {
namespace {

// The operand, and its answer's tensor with type and shape.
absl::StatusOr<RotaryOperand> ReadOperand(const Reader& reader, std::string_view name, const v1::RotaryOperand& message,
                                          v1::Tensor* answer) {
  RotaryOperand operand;
  POSENC_ASSIGN_OR_RETURN(operand.tensor, reader.Shape(std::string(name) + ".tensor", message.tensor()));
  operand.rotary_offset = message.rotary_offset();
  WriteShape(operand.tensor, answer);
  return operand;
}

absl::StatusOr<Output> PlaceOf(const Reader& reader, std::string_view name, const v1::RotaryOperand& message,
                               v1::Tensor* answer) {
  return reader.Place(std::string(name) + ".output", OutputOf(message), reader.payloads.Size(message.tensor()), answer);
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::ApplyRotaryRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::ApplyRotaryResponse* response) {
  const Reader reader{payloads, limits};
  if (!request.has_q()) return InvalidArgument("MISSING", "q", "", "is required; k alone goes into q");
  POSENC_ASSIGN_OR_RETURN(const ResolvedRotary resolved, ResolveRotary(reader, request.rotary(), request.precision()));
  ApplyRotary call;
  call.precision = resolved.precision;
  POSENC_ASSIGN_OR_RETURN(
      call.layout,
      (Choose<v1::Layout, Layout>(
          "layout", request.layout(),
          {{v1::LAYOUT_BSHD, Layout::kBSHD}, {v1::LAYOUT_BHSD, Layout::kBHSD}, {v1::LAYOUT_THD, Layout::kTHD}})));
  POSENC_ASSIGN_OR_RETURN(call.direction,
                          (Choose<v1::Direction, Direction>("direction", request.direction(),
                                                            {{v1::DIRECTION_UNSPECIFIED, Direction::kForward},
                                                             {v1::DIRECTION_FORWARD, Direction::kForward},
                                                             {v1::DIRECTION_TRANSPOSE, Direction::kTranspose},
                                                             {v1::DIRECTION_INVERSE, Direction::kInverse}})));
  POSENC_ASSIGN_OR_RETURN(call.q, ReadOperand(reader, "q", request.q(), response->mutable_q()));
  if (request.has_k()) {
    POSENC_ASSIGN_OR_RETURN(call.k, ReadOperand(reader, "k", request.k(), response->mutable_k()));
  }
  POSENC_ASSIGN_OR_RETURN(call.positions, reader.ReadPositions(request.positions()));

  Job job;
  std::vector<const v1::Tensor*> inputs = {&request.q().tensor()};
  POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(), PlaceOf(reader, "q", request.q(), response->mutable_q()));
  if (request.has_k()) {
    inputs.push_back(&request.k().tensor());
    POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(), PlaceOf(reader, "k", request.k(), response->mutable_k()));
  }
  int64_t bytes = 0;  // of the answer itself
  for (const Output& output : job.outputs) bytes += output.shared == nullptr ? static_cast<int64_t>(output.bytes) : 0;
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));

  std::shared_ptr<const RotaryApplication> application;
  std::vector<const RotaryPlan*> plans;
  if (resolved.rotary) {
    auto created = RotaryApplication::Create(*resolved.rotary, std::move(call), limits);
    POSENC_RETURN_IF_ERROR(created.status());
    application = std::make_shared<const RotaryApplication>(*std::move(created));
    plans = PlansOf(application->rows());
  }
  WriteRotaryInfo(resolved, plans, request.hints().return_plan(), response->mutable_info());

  // Rotated from where the request's bytes lie into the answer: no byte is copied on the way.
  job.run = [application, inputs = std::move(inputs), &payloads](absl::Span<std::byte* const> buffers, WorkPool& pool,
                                                                 const Cancellation& cancelled) -> absl::Status {
    if (application == nullptr) {  // a layer that does not rotate
      for (size_t n = 0; n < inputs.size(); ++n) payloads.CopyTo(*inputs[n], buffers[n]);
      return absl::OkStatus();
    }
    const TensorBytes q(payloads, *inputs[0]), k(payloads, *inputs.back());
    return application->Run({&q, buffers[0]}, {&k, buffers.back()}, pool, cancelled);
  };
  return job;
}

}  // namespace posenc::wire
