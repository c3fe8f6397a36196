// ABI between posenc and a device plugin: plain C, so that neither depends on the other's compiler, C++ library or
// build. A plugin is a shared library that exports
//
//   const uint32_t posenc_plugin_abi = POSENC_PLUGIN_ABI;                read before any of its code runs
//   const struct posenc_plugin* posenc_plugin_open(struct posenc_error* error);  called once
//
// posenc_plugin_open returns null if no device is usable, with the reason in the error's message. Otherwise the message
// may list devices that were left out.
//
// A plugin is never unloaded. Every function is thread-safe and returns when its work is done. Unless it returns
// POSENC_OK, it leaves host memory unchanged, so that the caller can compute the same work elsewhere. The contents of
// device memory that it writes to are undefined after an error.
//
// Results must equal those of posenc's CPU kernels byte for byte, as defined in posenc/kernels/rotate_pairs.h,
// sincos_rows.h and distance_bias.h. Fields have the names used there; numbers are little-endian, arrays contiguous.
#ifndef POSENC_DEVICE_PLUGIN_ABI_H_
#define POSENC_DEVICE_PLUGIN_ABI_H_

#include <stdint.h>

// ABI version. Incremented with any change of this file; both sides must be compiled with the same version.
#define POSENC_PLUGIN_ABI 2u

#ifdef __cplusplus
extern "C" {
#endif

enum posenc_status {
  POSENC_OK = 0,
  POSENC_OUT_OF_MEMORY = 1,  // device memory; other calls, or a later retry, may succeed
  POSENC_BAD_HANDLE = 2,     // memory cannot be opened or is too small
  POSENC_UNSUPPORTED = 3,    // no error: this device cannot do this work
  POSENC_DEVICE_LOST = 4,    // permanent: every later call would fail too
};

struct posenc_error {
  int32_t status;     // posenc_status
  char message[252];  // NUL-terminated
};

// Counterparts of posenc::DType, Pairing, Rounding and Frequencies.
enum posenc_dtype { POSENC_FP32 = 0, POSENC_FP16 = 1, POSENC_BF16 = 2, POSENC_FP64 = 3 };
enum posenc_pairing { POSENC_INTERLEAVED = 0, POSENC_HALF_SPLIT = 1 };
enum posenc_rounding { POSENC_ROUND_ONCE = 0, POSENC_ROUND_EACH_OPERATION = 1 };
enum posenc_frequencies { POSENC_EXACT = 0, POSENC_FLOAT64 = 1, POSENC_FLOAT32 = 2 };

struct posenc_device_info {
  char family[16];         // "cuda": device n is called "cuda:n"
  char name[128];          // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes;   // bytes of device memory
  uint64_t slab_bytes;     // maximum per call: x of rotate, out of bias, cos plus sin of table
  uint32_t calls_at_once;  // maximum concurrent calls; more wait
};

// A tensor: dense in the caller's memory, as consecutive pieces with arbitrary boundaries; or, if `device` is not null,
// in device memory from posenc_plugin.open_memory.
struct posenc_piece {
  void* data;
  uint64_t bytes;
};
struct posenc_tensor {
  const struct posenc_piece* pieces;
  uint64_t count;
  void* device;  // address of the first element; null if absent
};

// Rows of cosines and sines, [rows, pairs]: given values, or angles to compute them from on the device.
struct posenc_table {
  uint64_t rows;
  uint64_t pairs;
  uint32_t dtype;  // posenc_dtype to which entries are rounded

  // Given values if not null: [rows, pairs] of FP64 if dtype is FP64, else of FP32.
  const void* cos;
  const void* sin;

  // Used if cos is null: entry (row, pair) has the angle positions[axis[pair] * rows + row] * inv_freq[pair].
  uint32_t frequencies;     // posenc_frequencies
  const double* positions;  // [axes, rows]
  uint64_t axes;
  const double* inv_freq;  // [pairs]
  const uint32_t* axis;    // [pairs]; null: all use axis 0
  double scale;            // a
  uint32_t divide;         // divide by a instead of multiplying
  uint32_t negate_sin;     // negate the sine after all rounding, also for angle zero
  // Callback for entries that the fast path cannot prove. Returns the first rounded value (POSENC_EXACT: rounded to
  // dtype, scale included; else to float32 or float64, without scale). For POSENC_FLOAT32 `position` is the position
  // rounded to float32. Thread-safe.
  void (*finish)(const struct posenc_table* table, double position, double inv_freq, double* cos, double* sin);
  const void* context;  // for finish only
};

// Counterpart of posenc::PairRotation, with a table.
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
  struct posenc_tensor x, y;  // both host or both device memory; may be equal (in place)
  uint64_t token_stride;      // bytes; device memory only, host rows are contiguous
  uint64_t head_stride;
};

// Counterpart of posenc::DistanceBias. All pointers except scores and out are host memory of the caller.
struct posenc_bias {
  uint32_t dtype;
  uint32_t rounding;
  uint64_t queries;
  uint64_t keys;
  // If not null, takes precedence: cell (i, j) is values[key_positions[j] - query_positions[i] - first], an integer
  // index in 0 .. value_count-1. With cls_query or cls_key the position of query 0 or key 0 is not read, and its cells
  // are the last three values: (0, j), (i, 0), (0, 0).
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
  struct posenc_tensor scores;  // absent if it has neither pieces nor device
  struct posenc_tensor out;
};

// IPC handle of another process's memory on the same device: a CUDA IPC handle.
struct posenc_memory_handle {
  uint8_t bytes[64];
};

struct posenc_plugin {
  uint32_t devices;
  char version[60];  // plugin and toolkit, for the log: "posenc 0.1.0, CUDA 13.0"
  int32_t (*describe)(uint32_t device, struct posenc_device_info* info, struct posenc_error* error);
  int32_t (*rotate)(uint32_t device, const struct posenc_rotate* work, struct posenc_error* error);
  int32_t (*bias)(uint32_t device, const struct posenc_bias* work, struct posenc_error* error);
  // Writes cos and sin to the caller's host memory, each [rows, pairs] of the table's dtype.
  int32_t (*table)(uint32_t device, const struct posenc_table* work, void* cos, void* sin, struct posenc_error* error);
  // Opens an allocation of another process, which must exist until close_memory. POSENC_BAD_HANDLE if it has fewer than
  // `bytes` bytes.
  int32_t (*open_memory)(uint32_t device, const struct posenc_memory_handle* handle, uint64_t bytes, void** memory,
                         struct posenc_error* error);
  int32_t (*close_memory)(uint32_t device, void* memory, struct posenc_error* error);
};

typedef const struct posenc_plugin* (*posenc_plugin_open_function)(struct posenc_error* error);

#ifdef __cplusplus
}
#endif
#endif  // POSENC_DEVICE_PLUGIN_ABI_H_
