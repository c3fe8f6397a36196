#include "posenc/kernels/dot_products.h"

#include <algorithm>

#include "posenc/base/interruption.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/dot_products.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes kRows rows (1 or 2) of kVectors vectors of columns (4 or 1): independent sums, which run in parallel.
template <size_t kRows, size_t kVectors, class D>
HWY_INLINE void Block(const DotProducts& work, D d, size_t row, size_t column) {
  const float* x = work.rows + row * work.row_stride;
  const float* z = x + (kRows - 1) * work.row_stride;
  const double* y = work.columns + column;
  const size_t lanes = hn::Lanes(d);
  auto x0 = hn::Zero(d), x1 = x0, x2 = x0, x3 = x0, z0 = x0, z1 = x0, z2 = x0, z3 = x0;
  for (size_t c = 0; c < work.depth; ++c, y += work.width) {
    const auto of_x = hn::Set(d, static_cast<double>(x[c])), of_z = hn::Set(d, static_cast<double>(z[c]));
    const auto add = [&](size_t vector, auto& to_x, auto& to_z) HWY_ATTR {
      if (vector >= kVectors) return;
      const auto columns = hn::LoadU(d, y + vector * lanes);
      to_x = hn::MulAdd(of_x, columns, to_x);
      if (kRows == 2) to_z = hn::MulAdd(of_z, columns, to_z);
    };
    add(0, x0, z0);
    add(1, x1, z1);
    add(2, x2, z2);
    add(3, x3, z3);
  }
  double* out = work.out + row * work.width + column;
  const auto store = [&](size_t vector, auto of_x, auto of_z) HWY_ATTR {
    if (vector >= kVectors) return;
    hn::StoreU(of_x, d, out + vector * lanes);
    if (kRows == 2) hn::StoreU(of_z, d, out + work.width + vector * lanes);
  };
  store(0, x0, z0);
  store(1, x1, z1);
  store(2, x2, z2);
  store(3, x3, z3);
}

// Computes columns from `begin` on while they fill a block. Returns the first column left.
template <size_t kVectors, class D>
HWY_INLINE size_t Blocks(const DotProducts& work, D d, size_t begin) {
  const size_t block = kVectors * hn::Lanes(d);
  size_t column = begin;
  for (; column + block <= work.width; column += block) {
    size_t row = 0;
    for (; row + 2 <= work.row_count; row += 2) Block<2, kVectors>(work, d, row, column);
    if (row < work.row_count) Block<1, kVectors>(work, d, row, column);
  }
  return column;
}

void Products(const DotProducts& work) {
  const hn::ScalableTag<double> d;
  const size_t column = Blocks<1>(work, d, Blocks<4>(work, d, 0));
  Blocks<1>(work, hn::CappedTag<double, 1>(), column);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(Products);

void ComputeDotProducts(const DotProducts& work) {
  if (work.depth == 0) {
    std::fill_n(work.out, work.row_count * work.width, 0.0);  // empty sums, whose columns may be null
    return;
  }
  constexpr size_t kProductsTogether = size_t{1} << 22;  // a millisecond between interruption points
  const size_t rows = std::max<size_t>(kProductsTogether / std::max<size_t>(work.depth * work.width, 1), 2);
  for (size_t begin = 0; begin < work.row_count; begin += rows) {
    if (begin > 0) InterruptionPoint();
    DotProducts some = work;
    some.rows += begin * work.row_stride;
    some.row_count = std::min(rows, work.row_count - begin);
    some.out += begin * work.width;
    HWY_DYNAMIC_DISPATCH(Products)(some);
  }
}

}  // namespace posenc
#endif  // HWY_ONCE
