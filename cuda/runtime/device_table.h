// A rotary table in memory of the device, as LaunchRotate reads it: the caller's, or computed there.
#pragma once

#include <cstdint>

#include "cuda/elements/table.h"
#include "cuda/launch.h"
#include "cuda/runtime/copies.h"
#include "cuda/runtime/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

inline uint64_t SizeOf(uint32_t dtype) { return dtype == POSENC_FP64 ? 8 : dtype == POSENC_FP32 ? 4 : 2; }

class DeviceTable {
 public:
  // Begins: when the table is computed, and not all of it is proven, Complete has something left to do.
  DeviceTable(Slot& slot, const posenc_table& table);

  // Computes on the host what the device could not prove. After other work was put on the stream, for which the device
  // need not wait. It is this thread that computes, at some microseconds an entry: where others can, it declines a
  // large number of them.
  void Complete(bool others_can);

  // Values of the table's dtype, [rows, pairs]: of double if that is FP64, else of float.
  const void* cos() const { return cos_; }
  const void* sin() const { return sin_; }
  uint64_t wide_bytes() const { return entries() * wide_; }
  uint64_t entries() const { return table_.rows * table_.pairs; }

 private:
  void Launch();
  // Entries *first, *first + 1 ... last[-1]. Wide is float or double.
  template <class Wide>
  void Patch(const uint64_t* first, const uint64_t* last);

  Slot& slot_;
  const posenc_table& table_;
  const uint64_t wide_;  // bytes of an entry
  Arrays arrays_;
  Scratch computed_cos_, computed_sin_, unproven_, count_;
  TableRecipe recipe_ = {};
  TableArguments arguments_ = {};
  const void* cos_;
  const void* sin_;
};

}  // namespace posenc::cuda
