#include "posenc/service/rotary_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/fingerprint.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/mapping/cached_keys.h"
#include "posenc/mapping/computed_positions.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/rotary_offset.h"

namespace posenc::wire {
namespace {

absl::StatusOr<RotaryOperand> ReadOperand(const Reader& reader, const std::string& name,
                                          const v1::RotaryOperand& message, Bytes bytes) {
  const std::string field = name + ".tensor";
  RotaryOperand operand;
  if (bytes == Bytes::kInRequest) {
    POSENC_ASSIGN_OR_RETURN(operand.tensor, reader.Shape(field, message.tensor()));
    return operand;
  }
  constexpr char kWhy[] = "must be absent: a stream's header has type and shape only, the bytes come in chunks";
  if (!message.tensor().data().empty()) return InvalidArgument("NOT_READ", field + ".data", "", kWhy);
  if (message.tensor().has_region()) return InvalidArgument("NOT_READ", field + ".region", "", kWhy);
  if (message.has_output()) return InvalidArgument("NOT_READ", name + ".output", "", kWhy);
  const LargeBlocksMayBeRefused scope;
  POSENC_ASSIGN_OR_RETURN(operand.tensor, ShapeOf(field, message.tensor(), reader.limits));
  return operand;
}

absl::Status PlaceRotation(const std::string& name, const v1::RotaryOperand& message, ResolvedRotary* resolved,
                           RotaryOperand* operand) {
  const std::vector<int64_t>& shape = operand->tensor.shape;
  POSENC_ASSIGN_OR_RETURN(operand->rotary_offset, RotaryOffset(name, message.rotary_offset(), message.rotates_first(),
                                                               shape.empty() ? 0 : shape.back(), resolved));
  return absl::OkStatus();
}

// For settings without frequencies.
absl::Status CheckNoOffset(const std::string& name, const v1::RotaryOperand& message) {
  if (message.rotary_offset() == 0) return absl::OkStatus();
  return InvalidArgument("CONFLICT", name + ".rotary_offset", fmt::format("{}", message.rotary_offset()),
                         "must be 0 with settings without frequencies: nothing rotates");
}

}  // namespace

absl::StatusOr<PreparedRotary> PrepareRotary(const Reader& reader, const v1::ApplyRotaryRequest& request, Bytes bytes) {
  const bool moves = request.has_cached_keys();
  if (moves && reader.plan_source == PlanSource::kCacheOnly) return WouldBlock();
  if (!moves && !request.has_q()) {
    return InvalidArgument("MISSING", "q", "", "must be given; to rotate k alone, send an empty q");
  }
  POSENC_ASSIGN_OR_RETURN(ResolvedRotary resolved, ResolveRotary(reader, request.rotary(), request.precision()));
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
  call.q.tensor = {DType::kFP32, {0}};
  if (request.has_q()) {
    POSENC_ASSIGN_OR_RETURN(call.q, ReadOperand(reader, "q", request.q(), bytes));
    POSENC_RETURN_IF_ERROR(PlaceRotation("q", request.q(), &resolved, &call.q));
  }
  if (request.has_k()) {
    POSENC_ASSIGN_OR_RETURN(call.k, ReadOperand(reader, "k", request.k(), bytes));
    POSENC_RETURN_IF_ERROR(PlaceRotation("k", request.k(), &resolved, &*call.k));
  }
  if (request.rotary().has_settings() && !resolved.rotary->rotates()) {
    POSENC_RETURN_IF_ERROR(CheckNoOffset("q", request.q()));
    POSENC_RETURN_IF_ERROR(CheckNoOffset("k", request.k()));
  }
  const int64_t offset_q = call.q.rotary_offset, offset_k = call.k ? call.k->rotary_offset : 0;
  POSENC_ASSIGN_OR_RETURN(call.positions,
                          ReadPositionsOf(reader, request.rotary(), request.positions(), IdsFor::kTensor));
  std::string cached_parameters;
  if (moves) {
    POSENC_ASSIGN_OR_RETURN(ReadKeys read, ReadCachedKeys(reader, request, call.positions, &resolved));
    call.cached = std::move(read.keys);
    cached_parameters = std::move(read.parameters_field);
    if (call.cached->pages && bytes == Bytes::kInChunks) {
      return InvalidArgument("UNSUPPORTED", "cached_keys.pages", "", "must be absent in a stream: send the tokens");
    }
  }
  if (resolved.rotary) {
    SettleLengthRule(request.rotary(), *resolved.rotary, call.positions, &resolved.notes);
    POSENC_RETURN_IF_ERROR(SettleCacheIndex(request.rotary(), *resolved.rotary, call.positions, &resolved.notes));
  }

  PreparedRotary prepared;
  prepared.q = call.q.tensor;
  prepared.k = call.k ? call.k->tensor : TensorShape{DType::kFP32, {0}};
  std::vector<const RotaryPlan*> plans;
  if (resolved.rotary) {
    auto created = RotaryApplication::Create(*resolved.rotary, std::move(call), reader.limits);
    if (DetailsOf(created.status()).field.starts_with("cached_keys.inv_freq")) {
      return Renamed(created.status(), [&](const std::string&) { return cached_parameters; });
    }
    POSENC_RETURN_IF_ERROR(OfParameters(resolved, created.status()));
    prepared.application = std::make_shared<const RotaryApplication>(*std::move(created));
    plans = PlansOf(prepared.application->rows());
  }
  if (request.hints().return_plan()) POSENC_RETURN_IF_ERROR(CheckReturned(plans, reader.limits));
  WriteRotaryInfo(resolved, plans, request.hints().return_plan(), &prepared.info);
  if (!resolved.rotary) return prepared;
  if (moves) {
    prepared.info.set_input_pairing(prepared.info.output_pairing());
    const TableRows& rows = prepared.application->rows();
    Fingerprint fingerprint;
    fingerprint.Add("cached keys").Add(prepared.info.plan_fingerprint());
    for (size_t n = 0; n < rows.entries(); ++n) rows.ComputedPlan(static_cast<int64_t>(n)).AddTo(fingerprint);
    prepared.info.set_plan_fingerprint(fingerprint.Digest());
  }
  const bool is_default = request.direction() == v1::DIRECTION_UNSPECIFIED;
  prepared.info.set_direction(is_default ? v1::DIRECTION_FORWARD : request.direction());
  prepared.info.set_q_rotary_offset(offset_q);
  prepared.info.set_k_rotary_offset(offset_k);
  return prepared;
}

absl::StatusOr<RotaryStream> RotaryStream::Create(const v1::ApplyRotaryRequest& header, const Payloads& payloads,
                                                  const Limits& limits) {
  RotaryStream stream;
  auto prepared = PrepareRotary({payloads, limits}, header, Bytes::kInChunks);
  if (!prepared.ok()) return Within("header", prepared.status());
  stream.prepared_ = *std::move(prepared);
  POSENC_ASSIGN_OR_RETURN(stream.q_size_, ByteSize("header.q.tensor", stream.prepared_.q, limits));
  POSENC_ASSIGN_OR_RETURN(stream.k_size_, ByteSize("header.k.tensor", stream.prepared_.k, limits));
  return stream;
}

int64_t RotaryStream::RowSize(v1::Operand operand) const {
  const TensorShape& tensor = operand == v1::OPERAND_QUERY ? prepared_.q : prepared_.k;
  return static_cast<int64_t>(SizeOf(tensor.dtype)) * (tensor.shape.empty() ? 1 : tensor.shape.back());
}

absl::Status RotaryStream::Check(const v1::RotaryChunk& chunk, size_t size) const {
  if (chunk.operand() == v1::OPERAND_UNSPECIFIED) {
    return InvalidArgument("MISSING", "chunk.operand", "", "must be given: OPERAND_QUERY or OPERAND_KEY");
  }
  const int64_t all = Size(chunk.operand()), row = RowSize(chunk.operand()), begin = chunk.rows().byte_offset();
  const auto bytes = static_cast<int64_t>(size);
  if (bytes == 0) return InvalidArgument("MISSING", "chunk.rows.data", "", "must be at least one head row");
  if (begin < 0 || begin >= all) {
    return InvalidArgument("OUT_OF_RANGE", "chunk.rows.byte_offset", fmt::format("{}", begin),
                           fmt::format("must be within {}, {} bytes", v1::Operand_Name(chunk.operand()), all));
  }
  if (begin % row != 0) {
    return InvalidArgument("MISMATCH", "chunk.rows.byte_offset", fmt::format("{}", begin),
                           fmt::format("must be a multiple of a head row's {} bytes", row));
  }
  if (bytes > all - begin) {
    return InvalidArgument("OUT_OF_RANGE", "chunk.rows.data", fmt::format("{} bytes at {}", bytes, begin),
                           fmt::format("must be within {}, {} bytes", v1::Operand_Name(chunk.operand()), all));
  }
  if (bytes % row != 0) {
    return InvalidArgument("MISMATCH", "chunk.rows.data", fmt::format("{} bytes", bytes),
                           fmt::format("must be a multiple of a head row's {} bytes", row));
  }
  return absl::OkStatus();
}

absl::Status RotaryStream::Rotate(v1::Operand operand, int64_t begin, int64_t size, const ByteSource& x, std::byte* y,
                                  WorkPool& pool, const Cancellation& cancelled) const {
  if (size == 0) return absl::OkStatus();  // an empty or absent operand
  if (prepared_.application == nullptr) {  // a layer that does not rotate
    Copy(x, 0, static_cast<size_t>(size), y);
    return absl::OkStatus();
  }
  const int64_t row = RowSize(operand);
  const Operand which = operand == v1::OPERAND_QUERY ? Operand::kQuery : Operand::kKey;
  return prepared_.application->RotateRows(which, begin / row, size / row, {&x, y}, pool, cancelled);
}

}  // namespace posenc::wire
