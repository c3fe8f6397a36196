// One cell of a bias with its mask: the formulas of posenc/kernels/distance_bias.h.
#pragma once

#include "cuda/elements/formats.h"

namespace posenc::cuda {

// Bounds on the keys that a query sees. For an absent kind of mask the defaults of RowMask and KeyMask apply.
struct RowMask {
  double lowest = -HUGE_VAL;  // least visible mask position of a key
  double highest = HUGE_VAL;
  double document = 0;
};
struct KeyMask {
  double position = 0;
  double document = 0;
  uint8_t valid = 1;
};

struct Windows {
  double left;
  double right;
  bool causal;
  double prefix_end;
};

// Sets the bounds on key positions for a query at `position`.
POSENC_ELEMENT void SetBounds(const Windows& windows, double position, RowMask& row) {
  row.lowest = position - windows.left;
  row.highest = position + windows.right;
  if (!windows.causal) return;
  const double last = position < windows.prefix_end ? windows.prefix_end : position;
  if (last < row.highest) row.highest = last;
}

POSENC_ELEMENT bool Visible(const RowMask& row, const KeyMask& key) {
  return key.position >= row.lowest && key.position <= row.highest && key.document == row.document && key.valid != 0;
}

struct Slopes {
  float past;
  float future;
  posenc_dtype dtype;  // the bias is rounded to this first
};

POSENC_ELEMENT float LinearBias(const Slopes& slopes, double query_position, double key_position) {
  const float distance = static_cast<float>(key_position - query_position);
  const float bias = (distance > 0 ? slopes.future : slopes.past) * distance + 0.0f;  // turns -0 into +0
  if (slopes.dtype == POSENC_BF16) return RoundTo(BFloat16(), bias);
  if (slopes.dtype == POSENC_FP16) return RoundTo(Float16(), bias);
  return bias;
}

// Index of a cell's gathered value: by positions, or one of the last three values for a cls token. The positions are
// subtracted before `first`, because their difference is exact wherever the positions are.
POSENC_ELEMENT uint64_t ValueOf(bool cls_query, bool cls_key, uint64_t value_count, double first, double query_position,
                                double key_position) {
  if (cls_query) return value_count - (cls_key ? 1 : 3);
  if (cls_key) return value_count - 2;
  return static_cast<uint64_t>(static_cast<int64_t>(key_position - query_position - first));
}

struct CellKind {
  posenc_rounding rounding;
  bool scored;  // else the score is not read
  bool biased;  // else the bias is +0
};

// Value of a visible cell: the bias, score + bias, or the unchanged score.
template <class Format>
POSENC_ELEMENT typename Format::Bits Cell(Format format, const CellKind& kind, typename Format::Bits score,
                                          float bias) {
  if (!kind.scored) return Encode(format, bias);
  if (!kind.biased) return score;
  const float rounded = kind.rounding == POSENC_ROUND_EACH_OPERATION ? RoundTo(format, bias) : bias;
  return Encode(format, Decode(format, score) + rounded);
}

}  // namespace posenc::cuda
