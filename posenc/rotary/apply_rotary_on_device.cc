// RotaryApplication's methods that run on a device.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "posenc/base/status.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/rotary/slab_table.h"

namespace posenc {
namespace {

std::string_view NameOf(Operand which) { return which == Operand::kQuery ? "q" : "k"; }

}  // namespace

absl::Status RotaryApplication::CheckInPlace(Operand which, DeviceBuffers buffers) const {
  if (rows_.pairs() == 0 && !ScalesRows(which)) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.tensor", NameOf(which)), "",
                           fmt::format("must be of a layer that rotates: {} stays as it is", NameOf(which)));
  }
  if (ScalesRows(which)) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.tensor", NameOf(which)), "",
                           "must be in the host's memory: query_scale multiplies q after its rotation there, unless "
                           "frequencies are exact and all elements rotate");
  }
  if (rows_.width() != rows_.pairs()) {
    return InvalidArgument(
        "UNSUPPORTED", fmt::format("{}.tensor", NameOf(which)), "",
        "must be in the host's memory: heads, or the elements of a pair, have their own table entries");
  }
  const int64_t elements = 2 * static_cast<int64_t>(rows_.pairs());
  const int64_t most = kMostHeldInPlace / static_cast<int64_t>(SizeOf(operand(which).tensor.dtype));
  if (buffers.x != buffers.y || input_pairing_ == output_pairing_ || elements <= most) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", fmt::format("{}.tensor", NameOf(which)), "",
                         fmt::format("must not be rotated in place in a device's memory: input and output pairing "
                                     "differ, and a head row has {} rotated elements, more than {}",
                                     elements, most));
}

bool RotaryApplication::RotateOn(Device& device, const Cells& cells, Operand which, Buffers buffers) const {
  const PairRotation work = Work(cells, which);
  const auto recipe = rows_.Recipe(cells.token, cells.tokens, TableType(which));
  const bool heads_first = call_.layout == Layout::kBHSD;
  const size_t row = work.head_dim * SizeOf(work.dtype);
  return device.Rotate(RotateSlab{.work = work,
                                  .recipe = *recipe,
                                  .x = buffers.x,
                                  .y = buffers.y,
                                  .start = Start(cells, which),
                                  .runs = heads_first ? work.heads : 1,
                                  .run_bytes = row * work.tokens * (heads_first ? 1 : work.heads),
                                  .run_stride = heads_first ? work.head_stride : 0});
}

absl::Status RotaryApplication::RotateInPlace(DeviceBuffers q, DeviceBuffers k, Device& device,
                                              const Cancellation& cancelled) const {
  if (!has_q() && !has_k()) return absl::OkStatus();
  if (has_q()) POSENC_RETURN_IF_ERROR(CheckInPlace(Operand::kQuery, q));
  if (has_k()) POSENC_RETURN_IF_ERROR(CheckInPlace(Operand::kKey, k));
  POSENC_RETURN_IF_ERROR(CheckPagesInPlace(k.x == k.y));
  // Table entries per call: bounds the table's device memory and the time between cancellation checks.
  constexpr int64_t kEntries = int64_t{1} << 20;
  const int64_t most = std::max<int64_t>(kEntries / static_cast<int64_t>(rows_.pairs()), 1);
  for (int64_t token = 0; token < rows_.positions().tokens();) {
    POSENC_RETURN_IF_ERROR(cancelled());
    const int64_t stop = token + InOnePage(token, SlabEnd(token, most) - token);
    for (const Operand which : {Operand::kQuery, Operand::kKey}) {
      const DeviceBuffers buffers = which == Operand::kQuery ? q : k;
      if (buffers.y == nullptr || operand(which).tensor.empty()) continue;
      const Cells cells{.token = token, .tokens = stop - token, .head = 0, .heads = axes_of(which).heads};
      PairRotation work = Work(cells, which);
      const auto recipe = rows_.Recipe(cells.token, cells.tokens, TableType(which));
      std::shared_ptr<const SlabTable> table;
      if (!recipe) {
        table = Table(cells, which);
        work.table_dtype = table->widened();
        work.cos = table->cos();
        work.sin = table->sin();
      }
      work.x = buffers.x + Start(cells, which);
      work.y = buffers.y + Start(cells, which);
      const absl::Status status = device.RotateInPlace(work, recipe ? &*recipe : nullptr);
      if (absl::IsInvalidArgument(status)) return Within(NameOf(which), status);
      POSENC_RETURN_IF_ERROR(status);
    }
    token = stop;
  }
  return absl::OkStatus();
}

int64_t RotaryApplication::SlabEnd(int64_t token, int64_t most) const {
  // Sequences are contiguous unless the layout is BHSD. A recipe can cover several of them only if they share one plan.
  const TokenPositions& positions = rows_.positions();
  const bool spans = call_.layout != Layout::kBHSD && rows_.entries() == 1 && rows_.has_recipe();
  const int64_t end = spans ? positions.tokens() : positions.begin(positions.SequenceOf(token) + 1);
  return std::min(token + most, end);
}

int64_t RotaryApplication::SlabsOn(const Device& device) const {
  const int64_t tokens = rows_.positions().tokens(), most = DeviceSlab(device);
  if (tokens == 0) return 0;
  const bool spans = SlabEnd(0, tokens) == tokens;
  const int64_t pieces = spans ? 1 : rows_.positions().sequences();
  return std::max(pieces, (tokens + most - 1) / most) * (call_.k ? 2 : 1);
}

// Tokens per slab: few enough to occupy all concurrent calls, but at least kWorthACall bytes, and at most slab_bytes().
int64_t RotaryApplication::DeviceSlab(const Device& device) const {
  constexpr int64_t kWorthACall = int64_t{2} << 20;
  int64_t token_bytes = TokenBytes(Operand::kQuery);
  if (call_.k) token_bytes = std::max(token_bytes, TokenBytes(Operand::kKey));
  token_bytes = std::max<int64_t>(token_bytes, 1);
  const auto places = static_cast<int64_t>(device.calls_at_once());
  const int64_t each = (rows_.positions().tokens() + places - 1) / places;
  const int64_t most = std::min(static_cast<int64_t>(device.slab_bytes()) / token_bytes,
                                static_cast<int64_t>(kMostHeldBySlab) / rows_.RecipeBytes(1));
  return std::max<int64_t>(std::min(most, std::max(each, kWorthACall / token_bytes)), 1);
}

absl::Status RotaryApplication::RunOn(Device& device, Buffers q, Buffers k, WorkPool& pool,
                                      const Cancellation& cancelled) const {
  const int64_t tokens = rows_.positions().tokens(), slab = DeviceSlab(device);
  const auto places = static_cast<int64_t>(device.calls_at_once());
  const auto rotate_slabs = [&](size_t begin, size_t end) {
    for (int64_t token = begin; token < static_cast<int64_t>(end);) {
      InterruptionPoint();
      const int64_t stop = std::min<int64_t>(end, SlabEnd(token, slab));
      for (const Operand which : {Operand::kQuery, Operand::kKey}) {
        const Buffers buffers = which == Operand::kQuery ? q : k;
        if (buffers.y == nullptr) continue;
        const Cells cells{.token = token, .tokens = stop - token, .head = 0, .heads = axes_of(which).heads};
        if (!RotateOn(device, cells, which, buffers)) RotateDeclined(cells, which, buffers);
      }
      token = stop;
    }
  };
  // One loop body per concurrent device call.
  return pool.ParallelFor(tokens, std::max(slab, (tokens + places - 1) / places), cancelled, rotate_slabs,
                          rows_.RecipeBytes(std::min(slab, tokens)));
}

// Rotates on the CPU, in CPU-sized slabs, a slab that the device declined.
void RotaryApplication::RotateDeclined(Cells cells, Operand which, Buffers buffers) const {
  const int64_t slab = Slab(std::max<int64_t>(TokenBytes(which), 1)), end = cells.token + cells.tokens;
  const TokenPositions& positions = rows_.positions();
  while (cells.token < end) {
    InterruptionPoint();
    const int64_t stop = std::min({cells.token + slab, end, positions.begin(positions.SequenceOf(cells.token) + 1)});
    cells.tokens = stop - cells.token;
    Rotate(cells, which, *Table(cells, which), /*large=*/false, buffers, 0);
    cells.token = stop;
  }
}

}  // namespace posenc
