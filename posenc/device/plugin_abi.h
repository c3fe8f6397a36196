// What a device plugin and posenc know of each other: plain C, so that neither depends on the other's compiler, C++
// library or build. A plugin is a shared library that exports
//
//   const uint32_t posenc_plugin_abi = POSENC_PLUGIN_ABI;                read before any of its code runs
//   const struct posenc_plugin* posenc_plugin_open(struct posenc_error* error);  once
//
// which is null if no device can be used: then the error's message says why. Else it may say which were left out.
//
// It is never unloaded. Every function may be called from any thread, returns when its work is done, and leaves the
// caller's memory untouched unless it returns POSENC_OK: a caller can compute the same elsewhere.
//
// The bytes are those that posenc's CPU kernels write: posenc/kernels/rotate_pairs.h, sincos_rows.h and
// distance_bias.h say what they are. Fields are named as there; numbers are little-endian, arrays contiguous.
#ifndef POSENC_DEVICE_PLUGIN_ABI_H_
#define POSENC_DEVICE_PLUGIN_ABI_H_

#include <stdint.h>

// Any change of this file changes it: both sides must have been compiled with the same.
#define POSENC_PLUGIN_ABI 2u

#ifdef __cplusplus
extern "C" {
#endif

enum posenc_status {
  POSENC_OK = 0,
  POSENC_OUT_OF_MEMORY = 1,  // of the device; others may succeed, and this one later
  POSENC_BAD_HANDLE = 2,     // memory that cannot be opened, or not so much of it
  POSENC_UNSUPPORTED = 3,    // nothing is wrong: this work is not for this device
  POSENC_DEVICE_LOST = 4,    // every later call would fail too
};

struct posenc_error {
  int32_t status;     // posenc_status
  char message[252];  // ends with a zero
};

// As posenc::DType, Pairing, Rounding and Frequencies.
enum posenc_dtype { POSENC_FP32 = 0, POSENC_FP16 = 1, POSENC_BF16 = 2, POSENC_FP64 = 3 };
enum posenc_pairing { POSENC_INTERLEAVED = 0, POSENC_HALF_SPLIT = 1 };
enum posenc_rounding { POSENC_ROUND_ONCE = 0, POSENC_ROUND_EACH_OPERATION = 1 };
enum posenc_frequencies { POSENC_EXACT = 0, POSENC_FLOAT64 = 1, POSENC_FLOAT32 = 2 };

struct posenc_device_info {
  char family[16];         // "cuda": device n is called "cuda:n"
  char name[128];          // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes;   // of the device
  uint64_t slab_bytes;     // of one call, at most: x of rotate, out of bias, cos and sin together of table
  uint32_t calls_at_once;  // as many overlap; more wait
};

// A tensor: dense in the caller's memory, in pieces that end anywhere, one after the other; or, if `device` is not
// null, where posenc_plugin.open_memory said.
struct posenc_piece {
  void* data;
  uint64_t bytes;
};
struct posenc_tensor {
  const struct posenc_piece* pieces;
  uint64_t count;
  void* device;  // begins with the first element
};

// Rows of cosines and sines, [rows, pairs]: of angles, computed where they are used; or as they are.
struct posenc_table {
  uint64_t rows;
  uint64_t pairs;
  uint32_t dtype;  // posenc_dtype: what entries are rounded to

  // As they are, where not null: [rows, pairs] of FP64 if dtype is, else of FP32.
  const void* cos;
  const void* sin;

  // Else: entry (row, pair) is of angle positions[axis[pair] * rows + row] * inv_freq[pair].
  uint32_t frequencies;     // posenc_frequencies
  const double* positions;  // [axes, rows]
  uint64_t axes;
  const double* inv_freq;  // [pairs]
  const uint32_t* axis;    // [pairs]; null: all of axis 0
  double scale;            // a
  uint32_t divide;         // by a, instead of multiplying
  uint32_t negate_sin;     // the sine's sign is changed, after all rounding; that of angle zero too
  // The first rounded value of an entry that the fast path cannot prove (kExact: to dtype, with the scale; else to
  // float32 or float64, without). The position is as the recipe has it: rounded to float32 for POSENC_FLOAT32.
  void (*finish)(const struct posenc_table* table, double position, double inv_freq, double* cos, double* sin);
  const void* context;  // finish's own
};

// posenc::RotatePairs, over a table.
struct posenc_rotate {
  uint32_t dtype;
  uint32_t rounding;
  uint32_t input_pairing;
  uint32_t output_pairing;
  uint64_t half_split_parts;
  uint64_t head_dim;
  uint64_t rotary_offset;
  uint64_t tokens;  // rows of the table
  uint64_t heads;
  struct posenc_table table;  // its pairs are rotary_dim / 2
  // Head rows [tokens, heads, head_dim], or [heads, tokens, head_dim] if heads_first.
  uint32_t heads_first;
  struct posenc_tensor x, y;  // both in the caller's memory or both the device's; the same memory: in place
  uint64_t token_stride;      // bytes; of the device's memory only, as rows of the caller's lie together
  uint64_t head_stride;
};

// posenc::DistanceBias, all of whose pointers but scores and out are the caller's memory.
struct posenc_bias {
  uint32_t dtype;
  uint32_t rounding;
  uint64_t queries;
  uint64_t keys;
  // Where it is there, it comes before all else: cell (i, j) is values[key_positions[j] - query_positions[i] - first],
  // whole numbers whose result is one of 0 .. value_count-1; with cls_query or cls_key the position of query 0 or key 0
  // is not read, and its cells are the last three values: (0, j), (i, 0), (0, 0).
  const float* values;
  uint64_t value_count;  // below 2^31
  double first;
  uint32_t cls_query;
  uint32_t cls_key;
  const double* query_positions;
  const double* key_positions;
  float past_slope;
  float future_slope;
  uint32_t bias_dtype;
  uint32_t causal;
  const float* bias;  // cell (i, j) is bias[i * bias_stride + j], bias_stride >= -1
  int64_t bias_stride;
  const double* mask_query_positions;
  const double* mask_key_positions;
  double prefix_end;
  double window_left;
  double window_right;
  const double* query_documents;
  const double* key_documents;
  const uint8_t* key_valid;
  float fill;
  uint32_t zero_fully_masked_rows;
  struct posenc_tensor scores;  // neither pieces nor device: none
  struct posenc_tensor out;
};

// Memory of another process on the same device: a CUDA IPC handle.
struct posenc_memory_handle {
  uint8_t bytes[64];
};

struct posenc_plugin {
  uint32_t devices;
  char version[60];  // of the plugin and what it was built with, for the log: "posenc 0.1.0, CUDA 13.0"
  int32_t (*describe)(uint32_t device, struct posenc_device_info* info, struct posenc_error* error);
  int32_t (*rotate)(uint32_t device, const struct posenc_rotate* work, struct posenc_error* error);
  int32_t (*bias)(uint32_t device, const struct posenc_bias* work, struct posenc_error* error);
  // Into the caller's memory, [rows, pairs] of the table's dtype each.
  int32_t (*table)(uint32_t device, const struct posenc_table* work, void* cos, void* sin, struct posenc_error* error);
  // Opens an allocation of another process, which must stay until close_memory; it is at least `bytes` long.
  int32_t (*open_memory)(uint32_t device, const struct posenc_memory_handle* handle, uint64_t bytes, void** memory,
                         struct posenc_error* error);
  int32_t (*close_memory)(uint32_t device, void* memory, struct posenc_error* error);
};

typedef const struct posenc_plugin* (*posenc_plugin_open_function)(struct posenc_error* error);

#ifdef __cplusplus
}
#endif
#endif  // POSENC_DEVICE_PLUGIN_ABI_H_
