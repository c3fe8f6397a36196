// Cells of a bias with its mask: the formulas of posenc/kernels/distance_bias.h.
//
// Real is double, or float where all positions, bounds and documents are float32 values. Both give the same bits:
// comparisons are exact, and the difference of two float32 values has the same rounding to float32 by way of float64 as
// without (double rounding is innocuous for 53 >= 2 * 24 + 2 significant bits: Figueroa, 1995).
#pragma once

#include "cuda/elements/formats.h"

namespace posenc::cuda {

struct Windows {
  double left;
  double right;
  bool causal;
  double prefix_end;
};

// Holds what the cells of a query's row need. With the defaults the query sees every key.
template <class Real>
struct Query {
  Real position = 0;
  Real lowest = -HUGE_VAL;  // least visible mask position of a key
  Real highest = HUGE_VAL;
  Real document = 0;
};

// Sets the bounds on key positions for a query with this mask position.
POSENC_ELEMENT void SetBounds(const Windows& windows, double mask_position, Query<double>& query) {
  query.lowest = mask_position - windows.left;
  query.highest = mask_position + windows.right;
  if (!windows.causal) return;
  const double last = mask_position < windows.prefix_end ? windows.prefix_end : mask_position;
  if (last < query.highest) query.highest = last;
}

// A key's position for Within: a key that is not valid is within no bounds.
template <class Real>
POSENC_ELEMENT Real MaskPosition(Real position, uint8_t valid) {
  return valid != 0 ? position : static_cast<Real>(NAN);
}

template <class Real>
POSENC_ELEMENT bool Within(const Query<Real>& query, Real mask_position) {
  return mask_position >= query.lowest && mask_position <= query.highest;
}

// The bias before it is rounded to bias_dtype.
template <class Real>
POSENC_ELEMENT float LinearBias(float past_slope, float future_slope, Real query_position, Real key_position) {
  const float distance = static_cast<float>(key_position - query_position);
  return (distance > 0 ? future_slope : past_slope) * distance + 0.0f;  // turns -0 into +0
}

// Index of a cell's gathered value: by positions, or one of the last three values for a cls token. The positions are
// subtracted before `first`, because their difference is exact wherever the positions are. With float, `first` is an
// integer and |first| + value_count at most 2^24, so that this difference is an integer that float holds.
template <class Real>
POSENC_ELEMENT int32_t ValueOf(bool cls_query, bool cls_key, uint64_t value_count, Real first, Real query_position,
                               Real key_position) {
  const auto count = static_cast<int32_t>(value_count);
  if (cls_query) return count - (cls_key ? 1 : 3);
  if (cls_key) return count - 2;
  return static_cast<int32_t>(key_position - query_position - first);
}

// The following functions take several cells at once, so that they branch once for all of them.

template <unsigned kCells>
POSENC_ELEMENT void RoundCells(posenc_dtype dtype, float (&cells)[kCells]) {
  if (dtype == POSENC_BF16) {
    for (float& cell : cells) cell = RoundTo(BFloat16(), cell);
  } else if (dtype == POSENC_FP16) {
    for (float& cell : cells) cell = RoundTo(Float16(), cell);
  }
}

// Makes biases scores + biases, before their rounding to the dtype. If not `biased`, it returns the scores (of which a
// NaN may become another NaN).
template <class Format, unsigned kCells>
POSENC_ELEMENT void AddScores(Format format, bool biased, posenc_rounding rounding,
                              const typename Format::Bits (&scores)[kCells], float (&cells)[kCells]) {
  if (biased && rounding == POSENC_ROUND_EACH_OPERATION) {
    for (float& cell : cells) cell = RoundTo(format, cell);
  }
  for (unsigned k = 0; k < kCells; ++k) {
    const float score = Decode(format, scores[k]);
    cells[k] = biased ? score + cells[k] : score;
  }
}

}  // namespace posenc::cuda
