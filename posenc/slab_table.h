// Cosines and sines of some tokens, in the form in which RotatePairs takes them.
#pragma once

#include <cstddef>
#include <optional>

#include "posenc/kernels/convert.h"
#include "posenc/line_allocator.h"
#include "posenc/table_rows.h"

namespace posenc {

class SlabTable {
 public:
  explicit SlabTable(size_t values) : cos_(values), sin_(values) {}

  void Compute(const TableRows& rows, int64_t token, int64_t count, DType type, Operand operand) {
    type_ = type;
    operand_ = rows.differ_by_operand() ? std::optional(operand) : std::nullopt;
    if (type == DType::kFP32 || type == DType::kFP64) {
      return rows.Compute(token, count, type, operand, cos_.data(), sin_.data());
    }
    narrow_.resize(cos_.size());
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

}  // namespace posenc
