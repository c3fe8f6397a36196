#include "cuda/runtime/foreign_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "cuda/runtime/error.h"

namespace posenc::cuda {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(posenc_memory_handle));

// Throws on errors. POSENC_UNSUPPORTED becomes POSENC_BAD_HANDLE, because the handle comes from the caller. So does
// cudaErrorUnknown, which elsewhere means that the device is lost: a handle must not withdraw the device.
void CheckHandle(cudaError_t error, const char* doing) {
  const posenc_status status = StatusOf(error);
  if (status == POSENC_UNSUPPORTED || error == cudaErrorUnknown) {
    cudaGetLastError();
    throw Failure(POSENC_BAD_HANDLE, std::string(doing) + ": " + cudaGetErrorString(error));
  }
  Check(error, doing);
}

// Returns a driver function, in its CUDA 3.2 version. Throws POSENC_UNSUPPORTED if the driver lacks it.
void* DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 3020, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  Check(error, name);
  if (found != cudaDriverEntryPointSuccess) throw Failure(POSENC_UNSUPPORTED, std::string("no driver's ") + name);
  return function;
}

// Returns the number of bytes from `memory` to the end of its allocation. The CUDA runtime has no such function.
uint64_t BytesFrom(void* memory) {
  using GetAddressRange = CUresult (*)(CUdeviceptr * base, size_t * size, CUdeviceptr pointer);
  const auto range = reinterpret_cast<GetAddressRange>(DriverFunction("cuMemGetAddressRange"));
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr base;
  size_t size;
  if (range(&base, &size, address) != CUDA_SUCCESS) {
    throw Failure(POSENC_BAD_HANDLE, "the driver does not know how long the memory is");
  }
  return base + size - address;
}

// Throws POSENC_BAD_HANDLE unless `memory` is on the device and has at least `bytes` bytes.
void CheckOpened(int device, void* memory, uint64_t bytes) {
  cudaPointerAttributes attributes;
  CheckHandle(cudaPointerGetAttributes(&attributes, memory), "asking what a handle opened");
  if (attributes.device != device) {
    throw Failure(POSENC_BAD_HANDLE, "the memory is device " + std::to_string(attributes.device) + "'s");
  }
  const uint64_t there = BytesFrom(memory);
  if (there < bytes) {
    throw Failure(POSENC_BAD_HANDLE,
                  "the memory has " + std::to_string(there) + " bytes, not " + std::to_string(bytes));
  }
}

}  // namespace

void* ForeignMemory::Open(int device, const posenc_memory_handle& handle, uint64_t bytes) {
  Key key = {device, {}};
  std::memcpy(key.second.data(), handle.bytes, sizeof handle.bytes);
  const std::lock_guard lock(mutex_);
  if (const auto at = opened_.find(key); at != opened_.end()) {
    CheckOpened(device, at->second.memory, bytes);
    ++at->second.users;
    return at->second.memory;
  }
  cudaIpcMemHandle_t ipc;
  std::memcpy(&ipc, handle.bytes, sizeof ipc);
  void* memory = nullptr;
  CheckHandle(cudaIpcOpenMemHandle(&memory, ipc, cudaIpcMemLazyEnablePeerAccess), "opening a handle");
  try {
    CheckOpened(device, memory, bytes);
    opened_[key] = {memory, 1};
  } catch (...) {
    if (cudaIpcCloseMemHandle(memory) != cudaSuccess) cudaGetLastError();
    throw;
  }
  return memory;
}

void ForeignMemory::Close(int device, void* memory) {
  const std::lock_guard lock(mutex_);
  for (auto at = opened_.begin(); at != opened_.end(); ++at) {
    if (at->first.first != device || at->second.memory != memory) continue;
    if (--at->second.users > 0) return;
    opened_.erase(at);
    Check(cudaIpcCloseMemHandle(memory), "closing a handle");
    return;
  }
  throw Failure(POSENC_BAD_HANDLE, "no such memory is open");
}

}  // namespace posenc::cuda
