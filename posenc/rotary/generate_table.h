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
  std::optional<Operand> operand;  // for xpos, and for nothing else
};

class TableGeneration {
 public:
  // Refuses positions that only make sense for tensors: offsets, cu_seqlens, a scaling length other than a given one.
  static absl::StatusOr<TableGeneration> Create(const Rotary& rotary, GenerateTable call, const Limits& limits);

  const TableRows& table() const { return table_; }
  int64_t rows() const { return rows_; }
  int64_t width() const;
  // Of the cosines (the sines have as many) of so many rows.
  absl::StatusOr<int64_t> Bytes(int64_t rows, const Limits& limits) const;

  // Writes rows [row_begin, row_begin + rows) of width() elements to cos and sin, which need no alignment.
  // `device` computes what it does not decline; null: the CPU computes all.
  absl::Status Run(int64_t row_begin, int64_t rows, std::byte* cos, std::byte* sin, WorkPool& pool,
                   const Cancellation& cancelled, Device* device = nullptr) const;

 private:
  explicit TableGeneration(TableRows table) : table_(std::move(table)) {}

  TableRows table_;
  int64_t rows_ = 0;
  DType dtype_ = DType::kFP32;
  TableForm form_ = TableForm::kHalfWidth;
  size_t half_split_parts_ = 1;
  Operand operand_ = Operand::kQuery;
};

}  // namespace posenc
