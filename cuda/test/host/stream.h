// What stands in for CUDA where there is no GPU: the functions of its runtime that the plugin calls, over the host's
// memory. What is put on a stream is done only when someone waits for it, so that whoever reads too early reads what
// was there before. Any call can be made to fail.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace posenc::cuda::host {

// The error that the test wants of this call, which is counted.
cudaError_t Fault();

void Enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace posenc::cuda::host
