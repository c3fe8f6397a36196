// Primitive: a bias with a mask, written as a matrix or added to given scores. The bias is linear in the distance
// (ALiBi), given as rows of float32 values, gathered from a table of float32 values, or absent.
//
// The linear bias of one matrix (one batch row, one head), query i at position qp[i], key j at position kp[j], in
// float32:
//
//   distance d = kp[j] - qp[i]   (exact in float64, then rounded to float32)
//   bias       = fl(past_slope * d) where d <= 0, fl(future_slope * d) where d > 0; a zero is +0
//
// The bias at distance 0 is +0 for either sign of the slope, and a score of -0 plus that bias is +0 (IEEE addition). A
// bias that is not zero in float32 but rounds to zero in bias_dtype or dtype keeps its sign. Without a bias a score is
// unchanged.
//
// A cell that the mask hides holds `fill` instead: one select, never the sum of two minima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <variant>

#include "posenc/base/dtype.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct NoBias {};

// Positions for the distance; all are finite.
struct LinearBias {
  const double* query_positions;    // [Sq]
  const double* key_positions;      // [Sk]; null: key j is at first_key + j
  float past_slope = 0;             // finite
  float future_slope = 0;           // finite
  DType bias_dtype = DType::kFP32;  // the bias is first rounded to this (Falcon: BF16), then per `rounding`
  double first_key = 0;             // read without key_positions; first_key + Sk is exact in float64
};

// Cell (i, j) has values[i * stride + j]. A NaN must have a payload of zeros, as arithmetic produces it. With a stride
// of -1 the rows are shifted slices of one list: one value per distance, for consecutive positions.
struct GivenBias {
  const float* values;
  ptrdiff_t stride = 0;
};

// Cell (i, j) has values[key_positions[j] - query_positions[i] - first], an integer index in 0 .. value_count-1. No
// value is a NaN. Query 0 (cls_query) or key 0 (cls_key) may be a token for the whole (BEiT's cls), whose position is
// not read: its cells have the last three values, in the order (0, j), (i, 0), (0, 0).
struct GatheredBias {
  const float* values;
  size_t value_count;  // below 2^31
  double first = 0;
  const double* query_positions;  // [Sq]
  const double* key_positions;    // [Sk]
  bool cls_query = false;
  bool cls_key = false;
};

struct DistanceBias {
  DType dtype;        // element type of scores and out: FP32, FP16 or BF16
  Rounding rounding;  // with scores: kOnce = rn_T(fl(score + bias)); kEachOperation = rn_T(score + rn_T(bias))
  size_t queries;     // Sq
  size_t keys;        // Sk
  std::variant<NoBias, LinearBias, GivenBias, GatheredBias> bias;

  // Positions that the mask compares (BLOOM moves keys for the distance only), in any order, with bounds computed in
  // float64. Both null: causal and windows are unused.
  const double* mask_query_positions = nullptr;  // [Sq]
  const double* mask_key_positions = nullptr;    // [Sk]
  bool mask_keys_ascend = false;                 // mask_key_positions never decrease: saves a test per key
  bool causal = false;                           // hides keys above both the query and prefix_end
  double prefix_end = -kUnlimited;               // last position of the prefix that every query sees
  double window_left = kUnlimited;               // hides keys below query - window_left; at least 0
  double window_right = kUnlimited;              // hides keys above query + window_right; at least 0
  const double* query_documents = nullptr;       // [Sq]: hides keys of other documents; both null: one document
  const double* key_documents = nullptr;         // [Sk]
  const uint8_t* key_valid = nullptr;            // [Sk], 0 hides the key; null: all valid
  float fill = 0;                                // rounded to dtype: in FP16 and BF16 the lowest float32 is -infinity
  bool zero_fully_masked_rows = false;           // a row with no visible key holds +0 (with scores too) instead of fill

  const std::byte* scores = nullptr;  // [Sq, Sk] contiguous or null; may equal out
  std::byte* out;                     // [Sq, Sk] contiguous
  bool large = false;                 // out exceeds the caches: bypass them where alignment allows
};

// Computes query rows [begin, end), with one dispatched call, or one for each 65,536 keys of longer rows, with
// interruption points between them. Thread-safe for disjoint ranges. Aborts if dtype is not FP32, FP16 or BF16. Scores
// and out need no alignment. Same bytes on every CPU target, except for NaN payloads.
void ComputeDistanceBias(const DistanceBias& work, size_t begin, size_t end);

}  // namespace posenc
