#include "cuda/runtime/error.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace posenc::cuda {

posenc_status StatusOf(cudaError_t error) {
  // Failures of a kernel or the device, after which CUDA returns the same error for every later call of the process.
  constexpr int kContained = 226;  // cudaErrorContained, which older CUDA releases lack
  constexpr int kLost[] = {
      cudaErrorIllegalAddress,
      cudaErrorLaunchFailure,
      cudaErrorLaunchTimeout,
      cudaErrorHardwareStackError,
      cudaErrorIllegalInstruction,
      cudaErrorMisalignedAddress,
      cudaErrorInvalidAddressSpace,
      cudaErrorInvalidPc,
      cudaErrorAssert,
      cudaErrorECCUncorrectable,
      cudaErrorNvlinkUncorrectable,
      kContained,
      cudaErrorExternalDevice,
      cudaErrorContextIsDestroyed,
      cudaErrorDevicesUnavailable,
      cudaErrorNoDevice,
      cudaErrorMpsRpcFailure,
      cudaErrorMpsClientTerminated,
      cudaErrorUnknown,
  };
  if (error == cudaSuccess) return POSENC_OK;
  if (error == cudaErrorMemoryAllocation) return POSENC_OUT_OF_MEMORY;
  return std::find(std::begin(kLost), std::end(kLost), error) != std::end(kLost) ? POSENC_DEVICE_LOST
                                                                                 : POSENC_UNSUPPORTED;
}

void Check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the thread's last error, which the next launch check would report again
  throw Failure(StatusOf(error),
                std::string(doing) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

int32_t Report(posenc_status status, const char* message, posenc_error* error) {
  error->status = status;
  std::snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

}  // namespace posenc::cuda
