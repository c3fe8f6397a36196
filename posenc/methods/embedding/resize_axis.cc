#include "posenc/methods/embedding/resize_axis.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace posenc {
namespace {

template <class N>
constexpr bool kExact = std::is_same_v<N, mpq_class>;

template <class N>
N FusedMultiplyAdd(const N& a, const N& b, const N& c) {
  if constexpr (kExact<N>) {
    return a * b + c;
  } else {
    return std::fma(a, b, c);
  }
}

template <class N>
int64_t Floor(const N& x) {
  if constexpr (kExact<N>) {
    mpz_class whole;
    mpz_fdiv_q(whole.get_mpz_t(), x.get_num_mpz_t(), x.get_den_mpz_t());
    return whole.get_si();
  } else {
    return static_cast<int64_t>(std::floor(x));
  }
}

template <class N>
N Absolute(const N& x) {
  return x < 0 ? N(-x) : x;
}

// Keys' kernel at a distance of 0 .. 1 and of 1 .. 2, by Horner's rule.
template <class N>
N NearKernel(const N& a, const N& x) {
  const N inner = FusedMultiplyAdd<N>(a + 2, x, -(a + 3));
  return FusedMultiplyAdd<N>(inner * x, x, N(1));
}
template <class N>
N FarKernel(const N& a, const N& x) {
  const N inner = FusedMultiplyAdd<N>(FusedMultiplyAdd<N>(a, x, -5 * a), x, 8 * a);
  return FusedMultiplyAdd<N>(inner, x, -4 * a);
}

// Table's cells per cell of the target.
template <class N>
N Step(const TableResize& resize, const ResizeAxis& axis) {
  if (resize.align_corners) return axis.target == 1 ? N(0) : N(N(axis.source - 1) / N(axis.target - 1));
  if (!axis.scale_factor) return N(axis.source) / N(axis.target);
  if constexpr (kExact<N>) {
    return 1 / N(*axis.scale_factor);
  } else {
    return static_cast<N>(1 / *axis.scale_factor);
  }
}

// Where the center of the target's cell lies between the centers of the table's cells.
template <class N>
N Coordinate(const TableResize& resize, const ResizeAxis& axis, int64_t index) {
  const N i(index), source(axis.source), target(axis.target), half(0.5);
  switch (resize.operations) {
    case ResizeOperations::kInterpolate: break;
    case ResizeOperations::kGather:
    case ResizeOperations::kEmbeddingBag:
      if (resize.align_corners) return i * N(source - 1) / N(std::max<int64_t>(axis.target - 1, 1));
      return N(N(i + half) * source / target) - half;
    case ResizeOperations::kGridSample: {
      if (resize.align_corners) break;
      const N normalized = N(N(i + half) / target) * 2 - 1;
      return FusedMultiplyAdd<N>(normalized + 1, source / 2, -half);
    }
  }
  const N step = Step<N>(resize, axis);
  if (resize.align_corners) return step * i;
  const N x = FusedMultiplyAdd<N>(step, i + half, -half);
  const bool clamped = resize.mode != ResizeMode::kBicubic && resize.padding == ResizePadding::kBorder;
  return clamped && x < 0 ? N(0) : x;
}

// The weights of the cells from floor(x) on, or from floor(x) - 1 on for the cubic kernel, by their distances.
template <class N>
std::vector<N> WeightsByDistance(bool cubic, const N& rest) {
  std::vector<N> weights;
  const N a(-0.75);
  for (int n = cubic ? -1 : 0; n <= (cubic ? 2 : 1); ++n) {
    const N distance = Absolute<N>(rest - n);
    if (!cubic) {
      weights.push_back(1 - distance);
    } else if (distance <= 1) {
      weights.push_back(N(N((a + 2) * distance) - N(a + 3)) * distance * distance + 1);
    } else {
      weights.push_back(N(N(N(N(a * distance) - N(5 * a)) * distance + 8 * a) * distance) - 4 * a);
    }
  }
  return weights;
}

// Interpolate computes these weights from the distances of two cells, by fused multiply-adds.
template <class N>
std::vector<N> WeightsOfInterpolate(bool cubic, const N& rest) {
  const N other = 1 - rest;
  if (!cubic) return {other, rest};
  const N a(-0.75);
  return {FarKernel<N>(a, rest + 1), NearKernel<N>(a, rest), NearKernel<N>(a, other), FarKernel<N>(a, other + 1)};
}

// The kernel is stretched by the step, so that each cell of the table counts; the weights are made to sum to 1.
template <class N>
AxisTaps<N> StretchedTaps(const TableResize& resize, const ResizeAxis& axis, int64_t index) {
  const bool cubic = resize.mode == ResizeMode::kBicubic;
  const N step = Step<N>(resize, axis), half(0.5), stretch = step > 1 ? step : N(1), a(-0.5);
  const N support = (cubic ? 2 : 1) * stretch, center = step * N(index + half);
  const int64_t begin = std::max<int64_t>(Floor<N>(center - support + half), 0);
  const int64_t end = std::min(Floor<N>(center + support + half), axis.source);
  AxisTaps<N> taps;
  N total(0);
  for (int64_t n = begin; n < end; ++n) {
    const N x = Absolute<N>(N(N(n) - center + half) * N(1 / stretch));
    N weight(0);
    if (!cubic) {
      if (x < 1) weight = 1 - x;
    } else if (x < 1) {
      weight = NearKernel<N>(a, x);
    } else if (x < 2) {
      weight = FarKernel<N>(a, x);
    }
    total += weight;
    taps.cells.push_back(n);
    taps.weights.push_back(weight);
  }
  for (N& weight : taps.weights) weight /= total;
  return taps;
}

}  // namespace

template <class N>
AxisTaps<N> TapsOf(const TableResize& resize, const ResizeAxis& axis, int64_t index) {
  const int64_t last = axis.source - 1;
  if (resize.mode == ResizeMode::kNearest) {
    return {{std::min(Floor<N>(N(index) * Step<N>(resize, axis)), last)}, {N(1)}};
  }
  if (resize.antialias) return StretchedTaps<N>(resize, axis, index);
  const bool cubic = resize.mode == ResizeMode::kBicubic;
  const N x = Coordinate<N>(resize, axis, index);
  const int64_t floor = std::min(Floor<N>(x), last);
  const N rest = std::clamp<N>(x - N(floor), N(0), N(1));
  const bool by_distance = resize.operations != ResizeOperations::kInterpolate;
  AxisTaps<N> taps;
  taps.weights = by_distance ? WeightsByDistance<N>(cubic, rest) : WeightsOfInterpolate<N>(cubic, rest);
  for (size_t n = 0; n < taps.weights.size(); ++n) {
    const int64_t cell = floor + static_cast<int64_t>(n) - (cubic ? 1 : 0);
    taps.cells.push_back(std::clamp<int64_t>(cell, 0, last));
    if (resize.padding == ResizePadding::kZeros && cell != taps.cells.back()) taps.weights[n] = 0;
  }
  return taps;
}

template AxisTaps<mpq_class> TapsOf(const TableResize&, const ResizeAxis&, int64_t);
template AxisTaps<float> TapsOf(const TableResize&, const ResizeAxis&, int64_t);
template AxisTaps<double> TapsOf(const TableResize&, const ResizeAxis&, int64_t);

}  // namespace posenc
