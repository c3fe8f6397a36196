// The kernels: over memory of the device, asynchronous on a stream. What they compute is the elements' (elements/), one
// call an element or a pair, so that the CPU's tests of those are tests of these.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

// posenc_table without the caller's memory. Fills cos and sin [rows, pairs], of double if dtype is FP64, else of float:
// values of dtype, as they are multiplied with. Where the fast path cannot prove the first rounding, the entry's index
// (row * pairs + pair) is appended to `unproven`, of which *unproven_count counts all, written or not.
struct TableArguments {
  uint64_t rows, pairs;
  posenc_dtype dtype;
  posenc_frequencies frequencies;
  const double* positions;    // [axes, rows]; float32's are rounded by the kernel
  const double* inv_freq;     // [pairs]
  const uint32_t* axis;       // [pairs] or null
  double scale_hi, scale_lo;  // what the first rounded value is of: a or 1/a for POSENC_EXACT, else 1
  bool scale_in_range;        // else nothing is proven but angle zero
  double zero_cos;            // the first rounded value of the cosine at angle zero
  double scale;               // a
  bool divide, negate_sin;
  void* cos;
  void* sin;
  uint64_t* unproven;  // [capacity]
  uint64_t capacity;
  unsigned long long* unproven_count;
};
cudaError_t LaunchTable(const TableArguments& work, cudaStream_t stream);

// Narrows what LaunchTable filled to the table's dtype, in place or elsewhere: what a table is sent back as.
cudaError_t LaunchNarrow(posenc_dtype dtype, const void* wide, void* narrow, uint64_t count, cudaStream_t stream);

// Head row (token, head) lies at token * token_stride + head * head_stride of x and of y, which may be the same.
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

// posenc_bias with everything in the device's memory; scores and out are [queries, keys].
struct BiasArguments {
  posenc_dtype dtype, bias_dtype;
  posenc_rounding rounding;
  uint64_t queries, keys;
  const float* values;
  uint64_t value_count;
  double first;
  bool cls_query, cls_key;
  const double *query_positions, *key_positions;
  float past_slope, future_slope;
  const float* bias;  // of query 0, key 0: a stride of -1 reads before it
  int64_t bias_stride;
  const double *mask_query_positions, *mask_key_positions;
  bool causal;
  double prefix_end, window_left, window_right;
  const double *query_documents, *key_documents;
  const uint8_t* key_valid;
  float fill;
  bool zero_fully_masked_rows;
  const void* scores;  // or null; may be out
  void* out;
};
cudaError_t LaunchBias(const BiasArguments& work, cudaStream_t stream);

}  // namespace posenc::cuda
