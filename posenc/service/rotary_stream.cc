#include "posenc/service/rotary_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/base/tensor.h"

namespace posenc::wire {

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

int64_t RotaryStream::held_bytes() const {
  return prepared_.application == nullptr ? 0 : prepared_.application->rows().positions().held_bytes();
}

absl::Status RotaryStream::Check(const v1::RotaryChunk& chunk, size_t size) const {
  if (chunk.operand() == v1::OPERAND_UNSPECIFIED) {
    return InvalidArgument("MISSING", "chunk.operand", "", "is required: OPERAND_QUERY or OPERAND_KEY");
  }
  const int64_t all = Size(chunk.operand()), row = RowSize(chunk.operand()), begin = chunk.rows().byte_offset();
  const auto bytes = static_cast<int64_t>(size);
  if (bytes == 0) return InvalidArgument("MISSING", "chunk.rows.data", "", "a chunk has at least one head row");
  if (begin < 0 || begin >= all) {
    return InvalidArgument("OUT_OF_RANGE", "chunk.rows.byte_offset", fmt::format("{}", begin),
                           fmt::format("{} has {} bytes", v1::Operand_Name(chunk.operand()), all));
  }
  if (begin % row != 0) {
    return InvalidArgument("MISMATCH", "chunk.rows.byte_offset", fmt::format("{}", begin),
                           fmt::format("must be a multiple of a head row's {} bytes", row));
  }
  if (bytes > all - begin) {
    return InvalidArgument("OUT_OF_RANGE", "chunk.rows.data", fmt::format("{} bytes at {}", bytes, begin),
                           fmt::format("{} has {} bytes", v1::Operand_Name(chunk.operand()), all));
  }
  if (bytes % row != 0) {
    return InvalidArgument("MISMATCH", "chunk.rows.data", fmt::format("{} bytes", bytes),
                           fmt::format("must be a multiple of a head row's {} bytes", row));
  }
  return absl::OkStatus();
}

absl::Status RotaryStream::Run(v1::Operand operand, int64_t begin, int64_t size, const ByteSource& x, std::byte* y,
                               WorkPool& pool, const Cancellation& cancelled) const {
  if (size == 0) return absl::OkStatus();  // an empty or absent operand
  if (prepared_.application == nullptr) {  // a layer that does not rotate
    Copy(x, 0, static_cast<size_t>(size), y);
    return absl::OkStatus();
  }
  const int64_t row = RowSize(operand);
  const Operand which = operand == v1::OPERAND_QUERY ? Operand::kQuery : Operand::kKey;
  return prepared_.application->RunRows(which, begin / row, size / row, {&x, y}, pool, cancelled);
}

}  // namespace posenc::wire
