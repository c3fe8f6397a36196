// Copies between the caller's memory and the device's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/runtime/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

// That a tensor in the caller's memory has that many bytes, and that these go through a slot's staging.
void CheckPieces(const posenc_tensor& tensor, uint64_t bytes);

// The tensor's pieces to the device, through the slot's staging: while a chunk is copied by the device, this thread
// fetches the next one.
void UploadPieces(Slot& slot, const posenc_tensor& tensor, uint64_t bytes, void* to);

// Back into the staging, in the order of the stream; once that is awaited, to the tensor's pieces. So nothing can fail
// any more when the first byte of the caller's is written.
void DownloadToStaging(Slot& slot, const void* from, uint64_t bytes);
void StagingToPieces(const Slot& slot, const posenc_tensor& tensor);

// Arrays of the caller's on the device, until the end of this object. CUDA copies them before it returns, as
// their memory is not pinned.
class Arrays {
 public:
  explicit Arrays(const Slot& slot) : slot_(slot) {}
  template <class T>
  const T* Upload(const T* from, uint64_t count) {
    return static_cast<const T*>(UploadBytes(from, count * sizeof(T)));
  }
  // Null, if there is nothing.
  const void* UploadBytes(const void* from, uint64_t bytes);

 private:
  const Slot& slot_;
  std::vector<Scratch> arrays_;
};

}  // namespace posenc::cuda
