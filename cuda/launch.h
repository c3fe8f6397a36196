// Kernel launches: over device memory, asynchronous on a stream. Kernels call the functions of elements/ for one or
// several elements, so that the CPU tests of those functions cover the kernels' arithmetic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/elements/bias.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

// Counterpart of posenc_table in device memory. LaunchTable fills cos and sin [rows, pairs], of double if dtype is
// FP64, else of float, with values rounded to dtype. If the fast path cannot prove the first rounding, the index
// (row * pairs + pair) is appended to `unproven`. *unproven_count counts all of them, also those beyond `capacity`.
struct TableArguments {
  uint64_t rows, pairs;
  posenc_dtype dtype;
  posenc_frequencies frequencies;
  const double* positions;    // [axes, rows]; the kernel rounds them for POSENC_FLOAT32
  const double* inv_freq;     // [pairs]
  const uint32_t* axis;       // [pairs] or null
  double scale_hi, scale_lo;  // scale before the first rounding: a or 1/a for POSENC_EXACT, else 1
  bool scale_in_range;        // false: only angle zero is proven
  double zero_cos;            // first rounded value of the cosine at angle zero
  double scale;               // a
  bool divide, negate_sin;
  void* cos;
  void* sin;
  uint64_t* unproven;  // [capacity]
  uint64_t capacity;
  unsigned long long* unproven_count;
};
cudaError_t LaunchTable(const TableArguments& work, cudaStream_t stream);

// Converts `count` values filled by LaunchTable to the table's dtype, to return them. `narrow` may equal `wide`.
cudaError_t LaunchNarrow(posenc_dtype dtype, const void* wide, void* narrow, uint64_t count, cudaStream_t stream);

// Head row (token, head) is at token * token_stride + head * head_stride of x and y, which may be equal (in place).
struct RotateArguments {
  posenc_dtype dtype;
  posenc_rounding rounding;
  posenc_pairing input_pairing, output_pairing;
  uint64_t half_split_parts, head_dim, rotary_offset, pairs, tokens, heads;
  bool table_is_double;
  const void* cos;  // [tokens, pairs], as LaunchTable fills it
  const void* sin;
  const void* x;
  void* y;
  uint64_t token_stride, head_stride;  // bytes
};
cudaError_t LaunchRotate(const RotateArguments& work, cudaStream_t stream);

// Counterpart of posenc_bias with all arrays in device memory; scores and out are [queries, keys]. Real is double, or
// float where that gives the same bits (cuda/elements/bias.h).
template <class Real>
struct BiasArguments {
  posenc_dtype dtype, bias_dtype;
  posenc_rounding rounding;
  uint64_t queries, keys;
  const float* values;
  uint64_t value_count;
  Real first;
  bool cls_query, cls_key;
  Query<Real>* query;         // [queries], changed for fully masked rows
  const Real* key_positions;  // null if there is no bias by positions
  float past_slope, future_slope;
  const float* bias;  // cell (0, 0); a stride of -1 reads before it
  int64_t bias_stride;
  bool masked;  // whether keys have mask positions, documents or validity
  const Real *mask_key_positions, *key_documents;
  const uint8_t* key_valid;
  float fill;
  bool zero_fully_masked_rows;
  const void* scores;  // null if absent; may equal out
  void* out;
};
template <class Real>
cudaError_t LaunchBias(const BiasArguments<Real>& work, cudaStream_t stream);

}  // namespace posenc::cuda
