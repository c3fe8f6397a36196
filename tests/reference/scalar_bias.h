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
        float bias = 0;
        if (const auto* gathered = std::get_if<GatheredBias>(&work.bias)) {
          const bool of_query = gathered->cls_query && i == 0, of_key = gathered->cls_key && j == 0;
          const double at = gathered->key_positions[j] - gathered->query_positions[i] - gathered->first;
          bias = gathered->values[of_query && of_key ? gathered->value_count - 1
                                  : of_query         ? gathered->value_count - 3
                                  : of_key           ? gathered->value_count - 2
                                                     : static_cast<size_t>(at)];
        } else if (const auto* given = std::get_if<GivenBias>(&work.bias)) {
          bias = given->values[static_cast<ptrdiff_t>(i) * given->stride + static_cast<ptrdiff_t>(j)];
        } else if (const auto* linear = std::get_if<LinearBias>(&work.bias)) {
          const float distance = static_cast<float>(linear->key_positions[j] - linear->query_positions[i]);
          bias = (distance > 0 ? linear->future_slope : linear->past_slope) * distance;
          if (bias == 0) bias = 0;  // -0 too
          bias = static_cast<float>(Round(linear->bias_dtype, bias));
        }
        value = bias;
        if (work.scores != nullptr) {
          if (work.rounding == Rounding::kEachOperation) bias = static_cast<float>(Round(work.dtype, bias));
          const auto score = static_cast<float>(Decode(work.dtype, work.scores + cell));
          value = std::holds_alternative<NoBias>(work.bias) ? score : score + bias;
        }
      }
      Encode(work.dtype, value, work.out + cell);
    }
  }
}

}  // namespace posenc::reference
