#include <cstring>
#include <string>

#include "cuda/launch.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/device_table.h"
#include "cuda/runtime/error.h"

namespace posenc::cuda {
namespace {

// Copies cos or sin to the staging buffer at `offset`, asynchronous on the stream. Narrows it first if `narrow` is set.
void Download(Slot& slot, uint32_t dtype, const void* wide, uint64_t entries, void* narrow, uint64_t offset) {
  const void* from = wide;
  if (narrow != nullptr) {
    Check(LaunchNarrow(static_cast<posenc_dtype>(dtype), wide, narrow, entries, slot.stream), "narrowing a table");
    from = narrow;
  }
  Check(cudaMemcpyAsync(slot.staging + offset, from, entries * SizeOf(dtype), cudaMemcpyDeviceToHost, slot.stream),
        "copying from the device");
}

}  // namespace

void Table(Device& device, const posenc_table& work, void* cos, void* sin) {
  const uint64_t bytes = work.rows * work.pairs * SizeOf(work.dtype);
  if (bytes == 0) return;
  if (2 * bytes > kSlabBytes) {
    throw Failure(POSENC_UNSUPPORTED, "a table of " + std::to_string(2 * bytes) + " bytes is more than the " +
                                          std::to_string(kSlabBytes) + " that one call can have");
  }
  const Device::Lease slot = device.Borrow();
  DeviceTable table(*slot, work);
  table.Complete(true);
  // FP16 and BF16 entries are computed as float, twice their size. cos and then sin are narrowed in one buffer.
  const bool narrows = work.dtype == POSENC_FP16 || work.dtype == POSENC_BF16;
  const Scratch narrow(*slot, narrows ? bytes : 0);
  Download(*slot, work.dtype, table.cos(), table.entries(), narrow.data(), 0);
  Download(*slot, work.dtype, table.sin(), table.entries(), narrow.data(), bytes);
  slot->Await();
  std::memcpy(cos, slot->staging, bytes);
  std::memcpy(sin, slot->staging + bytes, bytes);
}

}  // namespace posenc::cuda
