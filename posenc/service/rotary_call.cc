#include "posenc/service/rotary_call.h"

#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/mapping/rotary_source.h"

namespace posenc::wire {
namespace {

absl::StatusOr<RotaryOperand> ReadOperand(const Reader& reader, const std::string& name,
                                          const v1::RotaryOperand& message, Bytes bytes) {
  const std::string field = name + ".tensor";
  RotaryOperand operand;
  operand.rotary_offset = message.rotary_offset();
  if (bytes == Bytes::kInRequest) {
    POSENC_ASSIGN_OR_RETURN(operand.tensor, reader.Shape(field, message.tensor()));
    return operand;
  }
  constexpr char kWhy[] = "a stream's header has type and shape only; the bytes come in chunks";
  if (!message.tensor().data().empty()) return InvalidArgument("NOT_READ", field + ".data", "", kWhy);
  if (message.tensor().has_region()) return InvalidArgument("NOT_READ", field + ".region", "", kWhy);
  if (message.has_output()) return InvalidArgument("NOT_READ", name + ".output", "", kWhy);
  POSENC_ASSIGN_OR_RETURN(operand.tensor, ShapeOf(field, message.tensor(), reader.limits));
  return operand;
}

}  // namespace

absl::StatusOr<PreparedRotary> PrepareRotary(const Reader& reader, const v1::ApplyRotaryRequest& request, Bytes bytes) {
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
  POSENC_ASSIGN_OR_RETURN(call.q, ReadOperand(reader, "q", request.q(), bytes));
  if (request.has_k()) {
    POSENC_ASSIGN_OR_RETURN(call.k, ReadOperand(reader, "k", request.k(), bytes));
  }
  POSENC_ASSIGN_OR_RETURN(call.positions, reader.ReadPositions(request.positions()));

  PreparedRotary prepared;
  prepared.q = call.q.tensor;
  prepared.k = call.k ? call.k->tensor : TensorShape{DType::kFP32, {0}};
  std::vector<const RotaryPlan*> plans;
  if (resolved.rotary) {
    auto created = RotaryApplication::Create(*resolved.rotary, std::move(call), reader.limits);
    POSENC_RETURN_IF_ERROR(created.status());
    prepared.application = std::make_shared<const RotaryApplication>(*std::move(created));
    plans = PlansOf(prepared.application->rows());
  }
  WriteRotaryInfo(resolved, plans, request.hints().return_plan(), &prepared.info);
  return prepared;
}

}  // namespace posenc::wire
