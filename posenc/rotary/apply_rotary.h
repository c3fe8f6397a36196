// Applies a rotary embedding (RoPE) to q and k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/byte_source.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/device/device.h"
#include "posenc/rotary/moved_keys.h"
#include "posenc/rotary/table_rows.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RotaryOperand {
  TensorShape tensor;  // FP32, FP16 or BF16; axes in the layout's order
  int64_t rotary_offset = 0;
};

struct ApplyRotary {
  Positions positions;
  Layout layout = Layout::kBSHD;
  Direction direction = Direction::kForward;
  Precision precision;
  RotaryOperand q;  // not read with `cached`
  std::optional<RotaryOperand> k;
  std::optional<CachedKeys> cached;  // k is rotated already
};

// A tensor's axis sizes, independent of their order in the layout.
//
//   BSHD [sequences, length, heads, head_dim]
//   BHSD [sequences, heads, length, head_dim]
//   THD [length, heads, head_dim]
struct TensorAxes {
  int64_t sequences = 1, length = 0, heads = 0, head_dim = 0;
};

class SlabTable;  // posenc/rotary/slab_table.h

// A validated ApplyRotary call. Immutable and thread-safe; it can run any number of times.
class RotaryApplication {
 public:
  static absl::StatusOr<RotaryApplication> Create(const Rotary& rotary, ApplyRotary call, const Limits& limits);

  const TableRows& rows() const { return rows_; }
  // True if Rotate can use a device for tensors in the host's memory.
  bool CanRunOnDevice() const { return rows_.has_recipe() && !is_paged(); }
  // Number of device calls that Rotate would split this call into.
  int64_t SlabsOn(const Device& device) const;

  // Host buffers of an operand. x may be y's own bytes (in place); otherwise they must not overlap. Null if absent.
  struct Buffers {
    const ByteSource* x = nullptr;
    std::byte* y = nullptr;
  };
  // Tables by the token with which they begin, and operand.
  using Tables = std::map<std::pair<int64_t, Operand>, std::shared_ptr<const SlabTable>>;
  // Computes the tables that Rotate() needs, or finds them in the cache, on this thread.
  Tables AllTables() const;
  // True if they take at most a mebibyte.
  bool has_small_tables() const;
  // `device` computes the slabs that it accepts, the CPU the others. Null: the CPU computes all. `tables`: AllTables();
  // null: each is computed as its slab begins.
  absl::Status Rotate(Buffers q, Buffers k, WorkPool& pool, const Cancellation& cancelled, Device* device = nullptr,
                      const Tables* tables = nullptr) const;

  // Device addresses of an operand, for RotateInPlace. x may equal y. Null if absent.
  struct DeviceBuffers {
    const std::byte* x = nullptr;
    std::byte* y = nullptr;
  };
  absl::Status RotateInPlace(DeviceBuffers q, DeviceBuffers k, Device& device, const Cancellation& cancelled) const;

  // Rotates head rows [first, first + count) of one operand, counted in storage order. The buffers begin with row
  // `first`. Writes the same bytes as Rotate.
  absl::Status RotateRows(Operand which, int64_t first, int64_t count, Buffers rows, WorkPool& pool,
                          const Cancellation& cancelled) const;

 private:
  // Heads [head, head + heads) of tokens [token, token + tokens), counted over the whole call.
  struct Cells {
    int64_t token, tokens, head, heads;
  };

  RotaryApplication(ApplyRotary call, const TensorAxes& q, const TensorAxes& k, TableRows rows)
      : call_(std::move(call)), q_axes_(q), k_axes_(k), rows_(std::move(rows)) {}

  const RotaryOperand& operand(Operand which) const;
  const TensorAxes& axes_of(Operand which) const { return which == Operand::kQuery ? q_axes_ : k_axes_; }
  DType TableType(Operand which) const;
  int64_t RowBytes(Operand which) const;
  int64_t TokenBytes(Operand which) const;
  // How Rotate() divides its work. Rows that all sequences share are computed once, for one sequence's tokens, and
  // reused for the others. If one token of all sequences exceeds a slab (a batch of decode steps), each slab covers
  // only some sequences.
  struct Division {
    int64_t items;     // tokens whose rows are computed
    int64_t repeats;   // sequences that use each row
    int64_t together;  // of these, in one slab
    int64_t parts;     // slabs of one token that cover them; 1: a slab has several tokens
    int64_t slab;      // items, or parts of one, in a slab
  };
  Division Divide() const;
  // Calls visit(cells of one sequence, without heads; part) for each table of items, or parts, [begin, end).
  template <typename Visit>
  void ForEachTable(const Division& division, int64_t begin, int64_t end, const Visit& visit) const;
  bool has_q() const { return !call_.q.tensor.empty(); }
  bool has_k() const { return call_.k && !call_.k->tensor.empty(); }
  // True if q and k are rotated by the same table.
  bool HaveOneTable() const;
  // Tokens per slab: enough work to outweigh scheduling, few enough that their table stays in the L2 cache.
  int64_t Slab(int64_t token_bytes) const;
  std::vector<Cells> CellsOf(Operand which, int64_t first, int64_t end) const;
  // One of `tables`, or computed if that is null. `cells` must lie in one sequence.
  std::shared_ptr<const SlabTable> Table(const Cells& cells, Operand which, const Tables* tables = nullptr) const;
  PairRotation Work(const Cells& cells, Operand which) const;
  size_t Start(const Cells& cells, Operand which) const;
  // UNSUPPORTED if a device cannot rotate the operand in place.
  absl::Status CheckInPlace(Operand which, DeviceBuffers buffers) const;
  // Returns false if the device declined; nothing is written then.
  bool RotateOn(Device& device, const Cells& cells, Operand which, Buffers buffers) const;
  absl::Status RunOn(Device& device, Buffers q, Buffers k, WorkPool& pool, const Cancellation& cancelled) const;
  void RotateDeclined(Cells cells, Operand which, Buffers buffers) const;
  int64_t DeviceSlab(const Device& device) const;
  // End of the tokens from `token` on that one device call can cover; at most token + most.
  int64_t SlabEnd(int64_t token, int64_t most) const;
  // Returns how many heads of `tokens` tokens have the bytes of a slab, at least 1.
  int64_t HeadsOfSlab(Operand which, int64_t tokens) const;
  // Rotates one token after another, with several threads for its sequences and heads.
  absl::Status RotateLargeTokens(const Division& division, Buffers q, Buffers k, bool large, WorkPool& pool,
                                 const Cancellation& cancelled, const Tables* tables) const;
  // True if elements of the operand are multiplied after their rotation.
  bool ScalesRows(Operand which) const;
  // Multiplies the cells, which begin at y, by their tokens' factors where the table does not contain them.
  void ScaleCells(const Cells& cells, Operand which, const SlabTable& table, std::byte* y) const;
  // `cells` must lie in one sequence. The buffers begin at byte `origin` of the tensor.
  void Rotate(const Cells& cells, Operand which, const SlabTable& table, bool large, Buffers buffers,
              size_t origin) const;
  bool is_paged() const { return page_size_ != 0; }
  absl::Status CheckPagesInPlace(bool in_place) const;
  // Largest number of tokens from `token` on that lie in one page; at most `most`.
  int64_t InOnePage(int64_t token, int64_t most) const;

  ApplyRotary call_;
  TensorAxes q_axes_, k_axes_;
  TableRows rows_;
  Pairing input_pairing_ = Pairing::kInterleaved;
  Pairing output_pairing_ = Pairing::kInterleaved;
  size_t half_split_parts_ = 1;
  int64_t page_size_ = 0;         // of call_.cached->pages; 0: there are none
  bool by_head_ = false;          // heads have their own table entries
  bool differs_in_pair_ = false;  // a pair's elements have their own table entries
};

}  // namespace posenc
