// Reference: rotation of pairs, one at a time, from the formula in rotate_pairs.h.
#pragma once

#include <utility>
#include <vector>

#include "posenc/kernels/rotate_pairs.h"
#include "tests/reference/scalar_format.h"

namespace posenc::reference {

// The elements of pair k, counted from the first rotated element.
inline std::pair<size_t, size_t> PairAt(Pairing pairing, const PairRotation& work, size_t k) {
  if (pairing == Pairing::kInterleaved) return {2 * k, 2 * k + 1};
  const size_t half = work.pairs / work.half_split_parts, part = k / half;
  return {part * 2 * half + k % half, part * 2 * half + half + k % half};
}

// (a*b) + sign*(c*d) by the rounding rule, in the table's type Real; not yet rounded to the tensor's type.
template <class Real>
double SumOfProducts(const PairRotation& work, Real a, Real b, Real sign, Real c, Real d) {
  Real first = a * b;
  Real second = c * d;
  if (work.rounding == Rounding::kEachOperation) {
    first = static_cast<Real>(Round(work.dtype, first));
    second = static_cast<Real>(Round(work.dtype, second));
  }
  return first + sign * second;
}

template <class Real>
Real EntryAt(const void* table, size_t entry) {
  Real value;
  std::memcpy(&value, static_cast<const std::byte*>(table) + entry * sizeof(Real), sizeof(Real));
  return value;
}

template <class Real>
void ScalarRotateRow(const PairRotation& work, size_t token, size_t head, const std::byte* x, std::byte* y) {
  const size_t element = SizeOf(work.dtype);
  const std::vector<std::byte> row(x, x + work.head_dim * element);
  std::memcpy(y, row.data(), row.size());
  for (size_t k = 0; k < work.pairs; ++k) {
    const size_t row_entries = work.token_entries == 0 ? work.pairs : work.token_entries;
    const size_t first = token * row_entries + head * work.head_entries + k, second = first + work.second_entry;
    const Real c0 = EntryAt<Real>(work.cos, first), s0 = EntryAt<Real>(work.sin, first);
    const Real c1 = EntryAt<Real>(work.cos, second), s1 = EntryAt<Real>(work.sin, second);
    const auto [in0, in1] = PairAt(work.input_pairing, work, k);
    const auto [out0, out1] = PairAt(work.output_pairing, work, k);
    const Real x0 = static_cast<Real>(Decode(work.dtype, row.data() + (work.rotary_offset + in0) * element));
    const Real x1 = static_cast<Real>(Decode(work.dtype, row.data() + (work.rotary_offset + in1) * element));
    Encode(work.dtype, SumOfProducts<Real>(work, x0, c0, -1, x1, s0), y + (work.rotary_offset + out0) * element);
    Encode(work.dtype, SumOfProducts<Real>(work, x1, c1, +1, x0, s1), y + (work.rotary_offset + out1) * element);
  }
}

inline void ScalarRotate(const PairRotation& work, size_t begin, size_t end) {
  for (size_t token = begin; token < end; ++token) {
    for (size_t head = 0; head < work.heads; ++head) {
      const size_t row = token * work.token_stride + head * work.head_stride;
      if (work.table_dtype == DType::kFP64) {
        ScalarRotateRow<double>(work, token, head, work.x + row, work.y + row);
      } else {
        ScalarRotateRow<float>(work, token, head, work.x + row, work.y + row);
      }
    }
  }
}

}  // namespace posenc::reference
