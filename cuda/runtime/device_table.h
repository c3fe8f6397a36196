// A rotary table in device memory, as LaunchRotate reads it: the caller's values, or computed on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/elements/table.h"
#include "cuda/launch.h"
#include "cuda/runtime/copies.h"
#include "cuda/runtime/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

inline uint64_t SizeOf(uint32_t dtype) { return dtype == POSENC_FP64 ? 8 : dtype == POSENC_FP32 ? 4 : 2; }

class DeviceTable {
 public:
  // Puts the upload or computation on the slot's stream. Call Complete before using the table. Keeps both references.
  DeviceTable(Slot& slot, const posenc_table& table);
  // Waits for the copies from patches_, which an exception may have left on the stream.
  ~DeviceTable();

  // Computes on the calling thread the entries that the device could not prove, some microseconds each. Call it after
  // putting independent work on the stream, so that the device does not idle. If others_can (the caller can compute the
  // work elsewhere), throws POSENC_UNSUPPORTED for more than 2^14 such entries.
  void Complete(bool others_can);

  // Device memory, [rows, pairs] of double if the table's dtype is FP64, else of float: values rounded to that dtype.
  const void* cos() const { return cos_; }
  const void* sin() const { return sin_; }
  uint64_t wide_bytes() const { return entries() * wide_; }
  uint64_t entries() const { return table_.rows * table_.pairs; }

 private:
  void Launch();
  // Computes the consecutive entries *first ... last[-1] at `cos` and `sin`, which must stay until the copies to the
  // device have ended. Wide is float or double.
  template <class Wide>
  void Patch(const uint64_t* first, const uint64_t* last, Wide* cos, Wide* sin);
  // Computes all entries of `unproven`, which is sorted.
  template <class Wide>
  void PatchAll(const std::vector<uint64_t>& unproven);

  Slot& slot_;
  const posenc_table& table_;
  const uint64_t wide_;  // bytes per entry
  Arrays arrays_;
  Scratch computed_cos_, computed_sin_, unproven_, count_;
  TableRecipe recipe_ = {};
  TableArguments arguments_ = {};
  const void* cos_;
  const void* sin_;
  std::vector<std::byte> patches_;  // cosines, then sines, of the unproven entries
};

}  // namespace posenc::cuda
