#include "posenc/apply_rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "posenc/caches.h"
#include "posenc/checks.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/line_allocator.h"
#include "posenc/rotate_pieces.h"
#include "posenc/status.h"

namespace posenc {
namespace {

// A tensor's axes, whatever their order.
//
//   BSHD [sequences, length, heads, head_dim]
//   BHSD [sequences, heads, length, head_dim]
//   THD [length, heads, head_dim]
struct Axes {
  int64_t sequences = 1, length, heads, head_dim;
};

absl::StatusOr<Axes> ReadAxes(std::string_view name, const TensorShape& tensor, Layout layout) {
  const auto& s = tensor.shape;
  const int64_t rank = layout == Layout::kTHD ? 3 : 4;
  if (tensor.rank() != rank) {
    return InvalidArgument("MISMATCH", fmt::format("{}.tensor.shape", name), ToString(s),
                           rank == 3                 ? "LAYOUT_THD wants [T, H, D]"
                           : layout == Layout::kBSHD ? "LAYOUT_BSHD wants [B, S, H, D]"
                                                     : "LAYOUT_BHSD wants [B, H, S, D]");
  }
  switch (layout) {
    case Layout::kBSHD: return Axes{s[0], s[1], s[2], s[3]};
    case Layout::kBHSD: return Axes{s[0], s[2], s[1], s[3]};
    case Layout::kTHD: return Axes{1, s[0], s[1], s[2]};
  }
  __builtin_unreachable();
}

absl::StatusOr<Axes> CheckOperand(std::string_view name, const RotaryOperand& operand, Layout layout,
                                  int64_t rotary_dim, const Limits& limits) {
  const DType dtype = operand.tensor.dtype;
  POSENC_RETURN_IF_ERROR(CheckDataType(fmt::format("{}.tensor.dtype", name), dtype));
  POSENC_ASSIGN_OR_RETURN(const Axes axes, ReadAxes(name, operand.tensor, layout));
  POSENC_RETURN_IF_ERROR(ByteSize(fmt::format("{}.tensor", name), operand.tensor, limits).status());
  if (axes.head_dim < rotary_dim) {
    return InvalidArgument("MISMATCH", fmt::format("{}.tensor.shape", name), ToString(operand.tensor.shape),
                           fmt::format("the last axis must be at least the rotary width {}", rotary_dim));
  }
  if (operand.rotary_offset < 0 || operand.rotary_offset > axes.head_dim - rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.rotary_offset", name),
                           fmt::format("{}", operand.rotary_offset),
                           fmt::format("must be 0 .. {}, head width less rotary width", axes.head_dim - rotary_dim));
  }
  return axes;
}

DType TypeOfTable(TableDtype table_dtype, DType tensor) {
  switch (table_dtype) {
    case TableDtype::kFloat32: return DType::kFP32;
    case TableDtype::kFloat64: return DType::kFP64;
    case TableDtype::kTensor: return tensor;
  }
  __builtin_unreachable();
}

// Cosines and sines of one slab, in the form in which RotatePairs takes them.
class SlabTable {
 public:
  explicit SlabTable(size_t values) : cos_(values), sin_(values), narrow_(values) {}

  void Compute(const TableRows& rows, int64_t token, int64_t count, DType type, Operand operand) {
    type_ = type;
    operand_ = rows.differ_by_operand() ? std::optional(operand) : std::nullopt;
    if (type == DType::kFP32 || type == DType::kFP64) {
      return rows.Compute(token, count, type, operand, cos_.data(), sin_.data());
    }
    // Rounded to the tensor's type, then widened: narrow sines lie behind narrow cosines.
    const size_t values = count * rows.pairs();
    auto* narrow = reinterpret_cast<std::byte*>(narrow_.data());
    std::byte* narrow_sin = narrow + values * SizeOf(type);
    rows.Compute(token, count, type, operand, narrow, narrow_sin);
    Convert(type, DType::kFP32, narrow, cos_.data(), values);
    Convert(type, DType::kFP32, narrow_sin, sin_.data(), values);
  }

  void Clear() { type_.reset(); }
  bool Holds(DType type, Operand operand) const { return type_ == type && operand_.value_or(operand) == operand; }
  DType widened() const { return type_ == DType::kFP64 ? DType::kFP64 : DType::kFP32; }
  const void* cos() const { return cos_.data(); }
  const void* sin() const { return sin_.data(); }

 private:
  LineVector<double> cos_, sin_, narrow_;  // doubles for their size
  std::optional<DType> type_;
  std::optional<Operand> operand_;  // none: for both
};

}  // namespace

absl::StatusOr<RotaryApplication> RotaryApplication::Create(const Rotary& rotary, ApplyRotary call,
                                                            const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const Axes q, CheckOperand("q", call.q, call.layout, rotary.rotary_dim(), limits));
  if (call.k) {
    POSENC_ASSIGN_OR_RETURN(const Axes k, CheckOperand("k", *call.k, call.layout, rotary.rotary_dim(), limits));
    if (k.sequences != q.sequences || k.length != q.length) {
      return InvalidArgument("MISMATCH", "k.tensor.shape", ToString(call.k->tensor.shape),
                             fmt::format("q and k must have the same {}: q is {}",
                                         call.layout == Layout::kTHD ? "T" : "B and S", ToString(call.q.tensor.shape)));
    }
  }
  auto positions = TokenPositions::Create(std::move(call.positions),
                                          {q.sequences, q.length, call.layout == Layout::kTHD, rotary.axes()}, limits);
  if (!positions.ok()) return Within("positions", positions.status());
  POSENC_ASSIGN_OR_RETURN(TableRows rows, TableRows::Create(rotary, *std::move(positions), call.direction, limits));
  RotaryApplication application(std::move(call), std::move(rows));
  application.input_pairing_ = rotary.input_pairing();
  application.output_pairing_ = rotary.output_pairing();
  return application;
}

absl::Status RotaryApplication::Run(Buffers q, Buffers k, WorkPool& pool, const Cancellation& cancelled) const {
  const size_t pairs = rows_.pairs();
  const TokenPositions& positions = rows_.positions();
  const int64_t tokens = positions.tokens();
  const Axes q_axes = *ReadAxes("q", call_.q.tensor, call_.layout);
  const bool has_q = !call_.q.tensor.empty(), has_k = call_.k && !call_.k->tensor.empty();
  if (!has_q && !has_k) return absl::OkStatus();

  // Rows that serve every sequence are computed once, for one sequence's tokens, and used for all.
  const bool share = rows_.same_for_all();
  const int64_t items = share ? q_axes.length : tokens;
  const int64_t repeats = share ? q_axes.sequences : 1;
  // Enough bytes to be worth a thread's while, and a table that stays in the second-level cache.
  int64_t token_bytes = 0;
  for (const RotaryOperand* operand : {&call_.q, call_.k ? &*call_.k : nullptr}) {
    if (operand == nullptr || operand->tensor.empty()) continue;
    const Axes axes = *ReadAxes("", operand->tensor, call_.layout);
    token_bytes += axes.heads * axes.head_dim * static_cast<int64_t>(SizeOf(operand->tensor.dtype)) * repeats;
  }
  constexpr int64_t kSlabBytes = int64_t{1} << 20;
  const int64_t most = std::clamp<int64_t>(16384 / static_cast<int64_t>(pairs), 1, 1024);
  const int64_t slab = std::clamp<int64_t>(kSlabBytes / token_bytes, 1, most);
  const bool large = ExceedsCaches(2 * items * token_bytes);

  const auto rotate = [&](const RotaryOperand& operand, Operand which, Buffers buffers, int64_t token, int64_t count,
                          SlabTable& table) {
    const DType dtype = operand.tensor.dtype;
    const Axes axes = *ReadAxes("", operand.tensor, call_.layout);
    const DType type = TypeOfTable(call_.precision.table_dtype, dtype);
    if (!table.Holds(type, which)) table.Compute(rows_, token, count, type, which);
    const size_t row = axes.head_dim * SizeOf(dtype);
    const bool heads_first = call_.layout == Layout::kBHSD;
    const RotatePairs work{
        .dtype = dtype,
        .head_dim = static_cast<size_t>(axes.head_dim),
        .rotary_offset = static_cast<size_t>(operand.rotary_offset),
        .pairs = pairs,
        .input_pairing = input_pairing_,
        .output_pairing = output_pairing_,
        .rounding = call_.precision.rounding,
        .large = large,
        .table_dtype = table.widened(),
        .cos = table.cos(),
        .sin = table.sin(),
        .x = nullptr,  // and y: as the bytes lie
        .y = nullptr,
        .tokens = static_cast<size_t>(count),
        .heads = static_cast<size_t>(axes.heads),
        .token_stride = heads_first ? row : row * axes.heads,
        .head_stride = heads_first ? row * axes.length : row,
    };
    for (int64_t n = 0; n < repeats; ++n) {
      const int64_t sequence = share ? n : token / axes.length;
      const int64_t within = share ? token : token % axes.length;
      const size_t start = (sequence * axes.length * axes.heads + within * (heads_first ? 1 : axes.heads)) * row;
      posenc::Run(work, *buffers.x, buffers.y, start);
    }
  };

  return pool.ParallelFor(items, slab, cancelled, [&](size_t begin, size_t end) {
    SlabTable table(std::min(slab, items) * pairs);
    // A slab may span sequences: each piece has its own.
    for (int64_t token = begin; token < static_cast<int64_t>(end);) {
      const int64_t stop = std::min<int64_t>(end, positions.begin(positions.SequenceOf(token) + 1));
      table.Clear();
      if (has_q) rotate(call_.q, Operand::kQuery, q, token, stop - token, table);
      if (has_k) rotate(*call_.k, Operand::kKey, k, token, stop - token, table);
      token = stop;
    }
  });
}

}  // namespace posenc
