#include "posenc/rotary/generate_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "posenc/base/caches.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/methods/rope/elements.h"

namespace posenc {
namespace {

absl::Status CheckCall(const GenerateTable& call) {
  switch (call.dtype) {
    case DType::kFP32:
    case DType::kFP16:
    case DType::kBF16:
    case DType::kFP64: break;
    default: return InvalidArgument("UNSUPPORTED", "dtype", Name(call.dtype), "must be FP32, FP16, BF16 or FP64");
  }
  if (std::holds_alternative<PerSequenceOffsets>(call.positions.source)) {
    return InvalidArgument("NOT_READ", "positions.offsets", "",
                           "must be absent: a table has one run of positions, use offset");
  }
  if (call.positions.cu_seqlens) {
    return InvalidArgument("NOT_READ", "positions.cu_seqlens", "", "must be absent without LAYOUT_THD");
  }
  const ScalingLengthRule rule = call.positions.scaling_length_rule;
  if (rule == ScalingLengthRule::kPerSequence || rule == ScalingLengthRule::kWholeBatch) {
    return InvalidArgument("OUT_OF_RANGE", "positions.scaling_length_rule", "",
                           "must be SCALING_LENGTH_RULE_GIVEN: the sequence's length can differ from the table's");
  }
  return absl::OkStatus();
}

// Writes `count` half-width rows, or parts of rows, of `pairs` elements in the given form.
void Expand(TableForm form, size_t size, const std::byte* half, size_t count, size_t pairs, std::byte* out) {
  const size_t row = pairs * size;
  switch (form) {
    case TableForm::kHalfWidth: std::memcpy(out, half, count * row); return;
    case TableForm::kDuplicated:
      for (size_t r = 0; r < count; ++r, half += row, out += 2 * row) {
        std::memcpy(out, half, row);
        std::memcpy(out + row, half, row);
      }
      return;
    case TableForm::kRepeatInterleaved:
      for (size_t n = 0; n < count * pairs; ++n, half += size, out += 2 * size) {
        std::memcpy(out, half, size);
        std::memcpy(out + size, half, size);
      }
      return;
    case TableForm::kPerElement: return;  // TableGeneration::Expand
  }
}

}  // namespace

absl::StatusOr<TableGeneration> TableGeneration::Create(const Rotary& rotary, GenerateTable call,
                                                        const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckCall(call));
  if (rotary.table() != nullptr && rotary.table()->sequences > 0) {
    return InvalidArgument("UNSUPPORTED", "rotary.settings.given_table.cos.shape", "",
                           "must be [rows, ...], rows by position: a table has no tokens");
  }
  if (rotary.differs_in_pair() && call.form != TableForm::kPerElement) {
    return InvalidArgument("UNSUPPORTED", "form", "",
                           "must be TABLE_FORM_PER_ELEMENT: the two elements of a pair have different entries");
  }
  POSENC_RETURN_IF_ERROR(CheckCount("count", call.rows, limits));
  auto positions = TokenPositions::Create(std::move(call.positions), {1, call.rows, false, rotary.axes()}, limits);
  if (!positions.ok()) return Within("positions", positions.status());
  POSENC_ASSIGN_OR_RETURN(TableRows table,
                          TableRows::Create(rotary, *std::move(positions), Direction::kForward, limits));
  if (table.differ_by_operand() != call.operand.has_value()) {
    if (call.operand) return InvalidArgument("NOT_READ", "operand", "", "must be absent without xpos");
    return InvalidArgument("MISSING", "operand", "", "must be given with xpos: the tables of q and k differ");
  }
  TableGeneration generation(std::move(table));
  generation.rows_ = call.rows;
  generation.dtype_ = call.dtype;
  generation.form_ = call.form;
  generation.half_split_parts_ = static_cast<size_t>(rotary.half_split_parts());
  generation.heads_ = static_cast<size_t>(rotary.heads());
  generation.differs_in_pair_ = rotary.differs_in_pair();
  generation.pairing_ = rotary.input_pairing();
  generation.operand_ = call.operand.value_or(Operand::kQuery);
  return generation;
}

std::vector<int64_t> TableGeneration::Shape(int64_t rows) const {
  const auto pairs = static_cast<int64_t>(table_.pairs()), heads = static_cast<int64_t>(heads_);
  const int64_t width = pairs * (form_ == TableForm::kHalfWidth ? 1 : 2);
  if (heads == 1) return {rows, width};
  return {rows, heads, width};
}

int64_t TableGeneration::row_elements() const {
  return static_cast<int64_t>(heads_ * table_.pairs()) * (form_ == TableForm::kHalfWidth ? 1 : 2);
}

// Writes computed rows in the form.
void TableGeneration::Expand(const std::byte* computed, size_t rows, std::byte* out) const {
  const size_t size = SizeOf(dtype_), pairs = table_.pairs(), count = rows * heads_;
  if (form_ != TableForm::kPerElement) {
    return posenc::Expand(form_, size, computed, count * half_split_parts_, pairs / half_split_parts_, out);
  }
  const PairPlaces places(pairing_, static_cast<int64_t>(pairs), static_cast<int64_t>(half_split_parts_));
  const size_t second = differs_in_pair_ ? pairs * size : 0;
  for (size_t n = 0; n < count; ++n, computed += pairs * size + second, out += 2 * pairs * size) {
    for (size_t pair = 0; pair < pairs; ++pair) {
      std::memcpy(out + places.Element(pair, 0) * size, computed + pair * size, size);
      std::memcpy(out + places.Element(pair, 1) * size, computed + pair * size + second, size);
    }
  }
}

absl::StatusOr<int64_t> TableGeneration::Bytes(int64_t rows, const Limits& limits) const {
  return ByteSize("answer", {dtype_, Shape(rows)}, limits);
}

absl::Status TableGeneration::WriteRows(int64_t row_begin, int64_t rows, std::byte* cos, std::byte* sin, WorkPool& pool,
                                        const Cancellation& cancelled, Device* device) const {
  const size_t width = table_.width(), size = SizeOf(dtype_), row_bytes = row_elements() * size;
  // Long enough to amortize the set-up of a run of positions (docs/exact-tables.md).
  const size_t cpu_slab = std::clamp<size_t>(32768 / width, 1, 1024);
  if (device != nullptr && !table_.has_recipe()) device = nullptr;
  // Half-width rows are computed where they belong, unless the answer's tensors are not aligned to their elements.
  const auto aligned = [size](const std::byte* out) { return reinterpret_cast<uintptr_t>(out) % size == 0; };
  const bool directly = form_ == TableForm::kHalfWidth && aligned(cos) && aligned(sin);
  const bool large = ExceedsCore(2 * static_cast<size_t>(rows) * row_bytes);
  size_t slab = cpu_slab;
  int64_t body_bytes = 0;  // a CPU slab's scratch is small
  if (device != nullptr) {
    const size_t held = (directly ? 0 : 2 * width * size) + table_.RecipeBytes(1);  // per row
    slab = std::max<size_t>(std::min(device->slab_bytes() / (2 * width * size), kMostHeldBySlab / held), 1);
    body_bytes = static_cast<int64_t>(std::min<size_t>(slab, rows) * held);
  }
  const auto write = [&](size_t begin, size_t end) {
    const size_t count = end - begin;
    const auto first = static_cast<int64_t>(row_begin + begin);
    std::byte *half_cos = cos + begin * row_bytes, *half_sin = sin + begin * row_bytes;
    std::unique_ptr<double[]> scratch;
    if (!directly) {
      const size_t doubles = (count * width * size + sizeof(double) - 1) / sizeof(double);
      // Uninitialised. Its elements are doubles for the alignment that the answer's tensors do not have.
      scratch = std::make_unique_for_overwrite<double[]>(2 * doubles);
      half_cos = reinterpret_cast<std::byte*>(scratch.get());
      half_sin = reinterpret_cast<std::byte*>(scratch.get() + doubles);
    }
    if (device == nullptr ||
        !device->ComputeTable(*table_.Recipe(first, static_cast<int64_t>(count), dtype_), half_cos, half_sin)) {
      for (size_t done = 0; done < count; done += cpu_slab) {
        // Leaves this function, so that scratch which is not computed does not reach the caller.
        if (device != nullptr) InterruptionPoint();
        const size_t offset = done * width * size;
        table_.Compute(first + static_cast<int64_t>(done), static_cast<int64_t>(std::min(cpu_slab, count - done)),
                       dtype_, operand_, half_cos + offset, half_sin + offset, directly && large);
      }
    }
    if (directly) return;
    Expand(half_cos, count, cos + begin * row_bytes);
    Expand(half_sin, count, sin + begin * row_bytes);
  };
  return pool.ParallelFor(rows, slab, cancelled, write, body_bytes);
}

}  // namespace posenc
