// Tables of cosines and sines.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/table_rows.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct GenerateTable {
  Positions positions;  // offset, ids or segments
  int64_t rows = 0;
  DType dtype = DType::kFP32;  // FP32, FP16, BF16 or FP64
  TableForm form = TableForm::kHalfWidth;
  std::optional<Operand> operand;  // required with xpos, otherwise rejected
};

class TableGeneration {
 public:
  // INVALID_ARGUMENT for positions that only fit tensors: offsets, cu_seqlens, per-sequence or whole-batch lengths.
  static absl::StatusOr<TableGeneration> Create(const Rotary& rotary, GenerateTable call, const Limits& limits);

  const TableRows& table() const { return table_; }
  int64_t rows() const { return rows_; }
  // Shape of `rows` rows: [rows, width], or [rows, heads, width] if each head has its own entries.
  std::vector<int64_t> Shape(int64_t rows) const;
  // Elements of a row.
  int64_t row_elements() const;
  // Bytes of `rows` rows of cosines; the sines take as many.
  absl::StatusOr<int64_t> Bytes(int64_t rows, const Limits& limits) const;

  // Writes rows [row_begin, row_begin + rows) of row_elements() elements to cos and sin, which need no alignment.
  // `device` computes the slabs that it accepts, the CPU the others. Null: the CPU computes all.
  absl::Status WriteRows(int64_t row_begin, int64_t rows, std::byte* cos, std::byte* sin, WorkPool& pool,
                         const Cancellation& cancelled, Device* device = nullptr) const;

 private:
  explicit TableGeneration(TableRows table) : table_(std::move(table)) {}
  void Expand(const std::byte* computed, size_t rows, std::byte* out) const;

  TableRows table_;
  int64_t rows_ = 0;
  DType dtype_ = DType::kFP32;
  TableForm form_ = TableForm::kHalfWidth;
  size_t half_split_parts_ = 1;
  size_t heads_ = 1;
  bool differs_in_pair_ = false;
  Pairing pairing_ = Pairing::kHalfSplit;
  Operand operand_ = Operand::kQuery;
};

}  // namespace posenc
