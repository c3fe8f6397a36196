// Device memory for the Python tests: allocation, copies in and out, and IPC handles for other processes.
// Each function returns 0 or the CUDA error.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "posenc/device/plugin_abi.h"

#define POSENC_EXPORTED extern "C" __attribute__((visibility("default")))

POSENC_EXPORTED int posenc_test_allocate(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
POSENC_EXPORTED int posenc_test_free(void* memory) { return cudaFree(memory); }
POSENC_EXPORTED int posenc_test_copy_in(void* to, const void* from, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}
POSENC_EXPORTED int posenc_test_copy_out(void* to, const void* from, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
POSENC_EXPORTED int posenc_test_share(void* memory, void* handle) {
  cudaIpcMemHandle_t shared;
  const int error = cudaIpcGetMemHandle(&shared, memory);
  std::memcpy(handle, &shared, sizeof shared);
  return error;
}

// Sizes of the ABI structs, which plugin.py compares with its own.
POSENC_EXPORTED const uint64_t posenc_test_sizes[] = {
    sizeof(posenc_error),  sizeof(posenc_device_info), sizeof(posenc_tensor), sizeof(posenc_table),
    sizeof(posenc_rotate), sizeof(posenc_bias),        sizeof(posenc_plugin),
};
