// Interface of an accelerator that computes slabs of work instead of the CPU kernels, with identical bytes.
//
// A device may decline any slab, or fail at it: then nothing is written, and the caller computes the slab with the CPU
// kernels. One call may therefore use both, without any effect on the result. See docs/adr/0012-devices.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/byte_source.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/sincos_rows.h"

namespace posenc {

// Inputs from which rows of cosines and sines, [rows, pairs], are computed. Fields are those of SinCosRows, plus
// several position axes and negation of the sines, which is applied after all rounding.
struct TableRecipe {
  Frequencies frequencies = Frequencies::kExact;
  DType dtype = DType::kFP32;
  size_t rows = 0;
  std::vector<double> positions;  // [axes, rows]
  std::vector<double> inv_freq;   // [pairs]
  std::vector<uint32_t> axis;     // [pairs]; empty if there is one axis
  double scale = 1;
  bool divide = false;
  bool negate_sin = false;
};

// Head rows of `work.tokens` tokens: `runs` runs of `run_bytes` bytes, `run_stride` bytes apart, the first at byte
// `start`, at the same offsets in x and y. A single run is [tokens, heads, head_dim]; with several runs, each holds one
// head.
struct RotateSlab {
  PairRotation work;  // its cos, sin, x and y are not read
  const TableRecipe& recipe;
  const ByteSource* x;
  std::byte* y;
  size_t start, runs, run_bytes, run_stride;
};

// Bytes of host memory that the description and the scratch of a slab take at most. Four slabs may then be in work at
// once (WorkPool::ParallelFor).
inline constexpr size_t kMostHeldBySlab = size_t{16} << 20;

// Most bytes of a head row's rotated elements in Device::RotateInPlace if x is y and the pairings differ: results then
// overwrite elements that are still to be read, so a device holds a whole row (kStageBytes of cuda/kernels).
inline constexpr int64_t kMostHeldInPlace = 48 * 1024;

// Device memory of another process: bytes [0, size) at a device address. Reference-counted; closed with the last copy.
struct DeviceMemory {
  std::shared_ptr<void> begin;
  size_t size = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // Returns e.g. "cuda:0".
  virtual const std::string& name() const = 0;
  // Returns false once the device is withdrawn: it declines all further work.
  virtual bool usable() const = 0;
  // Maximum bytes per slab: of a rotation's x, of a bias's out, or of a table's cosines and sines together.
  virtual size_t slab_bytes() const = 0;
  // Number of slabs that the device computes concurrently; further calls wait.
  virtual size_t calls_at_once() const = 0;

  // Rotate() and Compute...() return true if the whole result is written, false if nothing is. Thread-safe. Rethrows
  // exceptions of the MPFR slow path, e.g. ComputationStopped.
  virtual bool Rotate(const RotateSlab& slab) = 0;
  // Computes all query rows of `work`.
  virtual bool ComputeBias(const DistanceBias& work) = 0;
  // Computes `cos` and `sin`, each [rows, pairs] of recipe.dtype.
  virtual bool ComputeTable(const TableRecipe& recipe, std::byte* cos, std::byte* sin) = 0;

  // Opens memory by the device runtime's IPC handle (cudaIpcMemHandle_t). INVALID_ARGUMENT unless `handle` is valid and
  // its allocation has at least `bytes` bytes. The device must outlive the result.
  virtual absl::StatusOr<DeviceMemory> Open(std::string_view handle, size_t bytes) = 0;
  // Computes all of `work`, whose x and y are device addresses, with the recipe's table or, if null, work.cos and .sin.
  // There is no CPU fallback: INVALID_ARGUMENT at the field "tensor" if the device cannot compute this work,
  // RESOURCE_EXHAUSTED if device memory is full, FAILED_PRECONDITION if the device is withdrawn. The contents of y are
  // unspecified after an error.
  virtual absl::Status RotateInPlace(const PairRotation& work, const TableRecipe* recipe) = 0;
};

}  // namespace posenc
