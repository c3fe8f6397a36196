// Fake CUDA runtime for tests without a GPU: the runtime functions that the plugin calls, over host memory. Work put on
// a stream runs only when a caller waits for it, so that a read that comes too early sees the old contents. Tests can
// make calls fail.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace posenc::cuda::host {

// Counts this call and returns the error injected for it, or cudaSuccess. Thread-safe.
cudaError_t Fault();

void Enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace posenc::cuda::host
