// Primitive: a bias with a mask, written as a matrix or added to given scores. It is linear in the distance (ALiBi), or
// comes as rows of float32 values, or is gathered from a table of them, or there is none.
//
// For one matrix (one batch row, one head), query i at position qp[i], key j at position kp[j], in float32:
//
//   distance d = kp[j] - qp[i]   (exact in float64, then rounded to float32)
//   bias       = fl(past_slope * d) where d <= 0, fl(future_slope * d) where d > 0; a zero is +0
//
// So the bias at distance 0 is +0 whatever the slope's sign, and a score of -0 plus that is +0, as IEEE adds. A bias
// that is not zero in float32 but rounds to zero in bias_dtype or dtype keeps its sign. Without a bias a score stays as
// it is.
//
// A cell that the mask hides holds `fill` instead, by one select, never by adding two minima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "posenc/base/dtype.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct DistanceBias {
  DType dtype;        // of scores and out: FP32, FP16 or BF16
  Rounding rounding;  // with scores: kOnce = rn_T(fl(score + bias)); kEachOperation = rn_T(score + rn_T(bias))
  size_t queries;     // Sq
  size_t keys;        // Sk

  // Gathered, where `values` is there: the bias of cell (i, j) is values[key_positions[j] - query_positions[i] -
  // first], whole numbers whose result is one of 0 .. value_count-1; no value is a NaN. Query 0 or key 0 may be a token
  // for the whole (BEiT's cls), whose position is not read: its cells have the last three values: (0, j), (i, 0), (0,
  // 0).
  const float* values = nullptr;
  size_t value_count = 0;  // below 2^31
  double first = 0;
  bool cls_query = false;
  bool cls_key = false;

  // Else linear in the distance, where key_positions is there.
  const double* query_positions = nullptr;  // [Sq] for the distance; finite, as all positions
  const double* key_positions = nullptr;    // [Sk] for the distance
  float past_slope = 0;                     // finite
  float future_slope = 0;                   // finite
  DType bias_dtype = DType::kFP32;          // the bias is rounded to this first (Falcon: BF16), then as `rounding` says

  // Else given, where it is there: the bias of cell (i, j) is bias[i * bias_stride + j]. A NaN among them has a payload
  // of zeros, as arithmetic makes it. With a stride of -1 rows are shifted slices of one list: a value a distance,
  // consecutive positions.
  const float* bias = nullptr;
  ptrdiff_t bias_stride = 0;

  // The mask compares positions of its own (BLOOM moves keys for the distance only), in any order, with bounds computed
  // in float64. Both null: causal and windows unused.
  const double* mask_query_positions = nullptr;  // [Sq]
  const double* mask_key_positions = nullptr;    // [Sk]
  bool mask_keys_ascend = false;                 // none is below the one before it: saves looking at each
  bool causal = false;                           // hides keys above both the query and prefix_end
  double prefix_end = -kUnlimited;               // of a prefix that every query sees
  double window_left = kUnlimited;               // hides keys below query - window_left; at least 0
  double window_right = kUnlimited;              // hides keys above query + window_right; at least 0
  const double* query_documents = nullptr;       // [Sq]: hides keys of other documents; both null: one document
  const double* key_documents = nullptr;         // [Sk]
  const uint8_t* key_valid = nullptr;            // [Sk], 0 hides the key; null: all valid
  float fill = 0;                                // rounded to dtype: the lowest float32 is an infinity in the others
  bool zero_fully_masked_rows = false;           // a row with no visible key holds +0 (with scores too) instead of fill

  const std::byte* scores = nullptr;  // [Sq, Sk] contiguous or null; may equal out
  std::byte* out;                     // [Sq, Sk] contiguous
  bool large = false;                 // out exceeds the caches: write past them where alignment allows
};

// Computes query rows [begin, end). Thread-safe for disjoint ranges; one dispatched call per slab. Scores and out need
// no alignment. The same bytes on every CPU target (NaN payloads excepted).
void Run(const DistanceBias& work, size_t begin, size_t end);

}  // namespace posenc
