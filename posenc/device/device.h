// A device that computes slabs of work in place of the CPU's kernels, with the same bytes.
//
// It may decline any slab, or fail at it: then nothing is written, and whoever asked computes it with the CPU's
// kernels. So a call may be computed by both, and nobody above needs to know. docs/adr/0012-devices.md.
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

// Rows of cosines and sines, [rows, pairs], by what they are computed from. As SinCosRows, but for the axes, and for
// the sines' sign, which is changed last.
struct TableRecipe {
  Frequencies frequencies = Frequencies::kExact;
  DType dtype = DType::kFP32;
  size_t rows = 0;
  std::vector<double> positions;  // [axes, rows]
  std::vector<double> inv_freq;   // [pairs]
  std::vector<uint32_t> axis;     // [pairs]; empty: there is one axis
  double scale = 1;
  bool divide = false;
  bool negate_sin = false;
};

// Head rows of `work.tokens` tokens, of x and of y at the same places: `runs` of `run_bytes` each, `run_stride` apart,
// the first at byte `start`. In a run all heads of a token follow one another, or, where there are several runs, each
// is one head's.
struct RotateSlab {
  RotatePairs work;  // without table, x and y
  const TableRecipe& recipe;
  const ByteSource* x;
  std::byte* y;
  size_t start, runs, run_bytes, run_stride;
};

// Memory of the device that another process has: bytes [0, size) at an address of the device's. Goes with the last
// copy.
struct DeviceMemory {
  std::shared_ptr<void> begin;
  size_t size = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // "cuda:0".
  virtual const std::string& name() const = 0;
  // False: it will decline everything from now on.
  virtual bool usable() const = 0;
  // Of a rotation's x, of a bias' out, of a table's cosines and sines together: at most.
  virtual size_t slab_bytes() const = 0;
  // Slabs that it computes side by side; more wait.
  virtual size_t calls_at_once() const = 0;

  // True: all is written. False: nothing is. Thread-safe.
  virtual bool Run(const RotateSlab& slab) = 0;
  // All query rows of `work`.
  virtual bool Run(const DistanceBias& work) = 0;
  // [rows, pairs] of recipe.dtype each.
  virtual bool Run(const TableRecipe& recipe, std::byte* cos, std::byte* sin) = 0;

  // `handle`: what the device's runtime shares memory by, as cudaIpcMemHandle_t. INVALID_ARGUMENT if it is none of an
  // allocation of at least so many bytes that can be shared.
  virtual absl::StatusOr<DeviceMemory> Open(std::string_view handle, size_t bytes) = 0;
  // All of `work`, whose x and y are addresses of the device's, by recipe or, if null, by work's cos and sin. Nobody
  // else can: RESOURCE_EXHAUSTED if its memory is full, FAILED_PRECONDITION if it is withdrawn; what is in y then is
  // not known.
  virtual absl::Status RunInPlace(const RotatePairs& work, const TableRecipe* recipe) = 0;
};

}  // namespace posenc
