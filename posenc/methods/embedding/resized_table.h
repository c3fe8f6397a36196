// A learned table whose grid is resized, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/dtype.h"
#include "posenc/base/tensor.h"
#include "posenc/methods/embedding/resize_axis.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults. Returns INVALID_ARGUMENT, naming the field of TableResize, for values out of range and for grids
// that do not fit each other or the table's number of rows.
absl::Status Complete(TableResize& resize, int64_t table_rows);

// Thread-safe.
class ResizedTable {
 public:
  // Requires completed settings, and a table [rows, D] of float elements that stays valid. kExact: each element, times
  // the scale, is rounded once. Other arithmetics follow resize.operations; the scale multiplies the rounded sum.
  ResizedTable(TableResize resize, const TensorShape& shape, std::span<const std::byte> table,
               std::optional<double> scale, Frequencies arithmetic);

  int64_t rows() const;
  // Multiplications of an average element.
  int64_t taps() const;
  // The table's row that a row equals, unless it is a sum of several.
  std::optional<int64_t> CopyOf(int64_t row) const;
  // Writes a row that is a sum: FP32, FP16, BF16 or FP64.
  void Fill(int64_t row, DType dtype, std::byte* out) const;

 private:
  // The axis' weights for all cells of the target: those of cell n are from begin[n] to begin[n + 1].
  struct Weights {
    std::vector<int64_t> begin;
    std::vector<int64_t> cells;
    std::vector<double> weights;
    std::vector<uint8_t> few_bits;  // by cell of the target: its weights are numbers of at most 14 bits
  };
  struct Cell {
    int64_t row;
    int64_t column;
  };

  Weights WeightsOf(const ResizeAxis& axis) const;
  Cell CellOf(int64_t index) const;
  int64_t TableRow(int64_t row, int64_t column) const;
  const std::byte* Row(int64_t row, int64_t column) const;
  void FillExact(Cell cell, DType dtype, std::byte* out) const;
  double ExactElement(const AxisTaps<mpq_class>& rows, const AxisTaps<mpq_class>& columns, size_t n, DType dtype) const;
  template <class Number>
  void FillRounded(Cell cell, DType dtype, std::byte* out) const;

  TableResize resize_;
  DType dtype_;
  size_t width_;
  std::span<const std::byte> table_;
  std::optional<double> scale_;
  Frequencies arithmetic_;
  ResizeAxis rows_axis_;
  ResizeAxis columns_axis_;
  Weights rows_;
  Weights columns_;
};

}  // namespace posenc
