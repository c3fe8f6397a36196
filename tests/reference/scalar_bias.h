// Reference: the distance bias, one cell at a time, from the formula in distance_bias.h.
#pragma once

#include "posenc/kernels/distance_bias.h"
#include "tests/reference/scalar_format.h"

namespace posenc::reference {

inline bool IsVisible(const DistanceBias& work, size_t query, size_t key) {
  if (work.key_valid != nullptr && work.key_valid[key] == 0) return false;
  if (work.key_documents != nullptr && work.key_documents[key] != work.query_documents[query]) return false;
  if (work.mask_key_positions == nullptr) return true;
  const double i = work.mask_query_positions[query];
  const double j = work.mask_key_positions[key];
  if (work.causal && j > i && j > work.prefix_end) return false;
  return i - work.window_left <= j && j <= i + work.window_right;
}

inline void ScalarBias(const DistanceBias& work, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    bool any_visible = false;
    for (size_t j = 0; j < work.keys; ++j) any_visible |= IsVisible(work, i, j);
    for (size_t j = 0; j < work.keys; ++j) {
      const size_t cell = (i * work.keys + j) * SizeOf(work.dtype);
      double value;
      if (!any_visible && work.zero_fully_masked_rows) {
        value = 0;
      } else if (!IsVisible(work, i, j)) {
        value = work.fill;
      } else {
        const bool gathered = work.values != nullptr;
        const bool linear = work.key_positions != nullptr && work.bias == nullptr && !gathered;
        float bias = 0;
        if (gathered) {
          const bool of_query = work.cls_query && i == 0, of_key = work.cls_key && j == 0;
          const auto at = static_cast<size_t>(work.key_positions[j] - work.query_positions[i] - work.first);
          bias = work.values[of_query && of_key ? work.value_count - 1
                             : of_query         ? work.value_count - 3
                             : of_key           ? work.value_count - 2
                                                : at];
        } else if (work.bias != nullptr) {
          bias = work.bias[static_cast<ptrdiff_t>(i) * work.bias_stride + static_cast<ptrdiff_t>(j)];
        } else if (linear) {
          const float distance = static_cast<float>(work.key_positions[j] - work.query_positions[i]);
          bias = (distance > 0 ? work.future_slope : work.past_slope) * distance;
          if (bias == 0) bias = 0;  // -0 too
          bias = static_cast<float>(Round(work.bias_dtype, bias));
        }
        value = bias;
        if (work.scores != nullptr) {
          if (work.rounding == Rounding::kEachOperation) bias = static_cast<float>(Round(work.dtype, bias));
          const auto score = static_cast<float>(Decode(work.dtype, work.scores + cell));
          value = linear || gathered || work.bias != nullptr ? score + bias : score;
        }
      }
      Encode(work.dtype, value, work.out + cell);
    }
  }
}

}  // namespace posenc::reference
