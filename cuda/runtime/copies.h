// Copies between the caller's memory and device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/runtime/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

// Throws POSENC_UNSUPPORTED unless the tensor's pieces have `bytes` bytes in total, at most kSlabBytes.
void CheckPieces(const posenc_tensor& tensor, uint64_t bytes);

// Copies the tensor's pieces to device memory `to` through the slot's staging buffer, in chunks: this thread fills the
// next chunk while the device copies the previous one. Asynchronous on the slot's stream.
void UploadPieces(Slot& slot, const posenc_tensor& tensor, uint64_t bytes, void* to);

// Copies back in two steps: to the staging buffer, asynchronous on the stream; then, after Slot::Await, to the tensor's
// pieces. So nothing can fail any more when the first byte of the caller's memory is written.
void DownloadToStaging(Slot& slot, const void* from, uint64_t bytes);
void StagingToPieces(const Slot& slot, const posenc_tensor& tensor);

// Copies of arrays in device memory, freed with this object. CUDA may read an array until Slot::Await.
class Arrays {
 public:
  explicit Arrays(const Slot& slot) : slot_(slot) {}
  template <class T>
  T* Upload(const T* from, uint64_t count) {
    return static_cast<T*>(UploadBytes(from, count * sizeof(T)));
  }
  // Returns the device address; null if `from` is null or `bytes` is 0.
  void* UploadBytes(const void* from, uint64_t bytes);

 private:
  const Slot& slot_;
  std::vector<Scratch> arrays_;
};

}  // namespace posenc::cuda
