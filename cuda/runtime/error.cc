#include "cuda/runtime/error.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace posenc::cuda {

posenc_status StatusOf(cudaError_t error) {
  // A kernel went wrong, or the device: CUDA answers every later call of the process with the same.
  constexpr int kContained = 226;  // cudaErrorContained, which older releases do not name
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
  cudaGetLastError();  // CUDA keeps it for this thread, and the next launch that asks would take it for its own
  throw Failure(StatusOf(error),
                std::string(doing) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

int32_t Report(posenc_status status, const char* message, posenc_error* error) {
  error->status = status;
  std::snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

}  // namespace posenc::cuda
