// Errors of plugin functions: thrown as Failure inside the plugin, caught by Guarded at the C boundary.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

class Failure : public std::runtime_error {
 public:
  Failure(posenc_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  posenc_status status() const { return status_; }

 private:
  posenc_status status_;
};

// Maps a CUDA error to a status: POSENC_DEVICE_LOST if the process can no longer use the device, POSENC_OUT_OF_MEMORY
// if memory is lacking, else POSENC_UNSUPPORTED (the caller computes the work elsewhere).
posenc_status StatusOf(cudaError_t error);

// Throws Failure unless `error` is cudaSuccess. `doing` begins the message: "copying to the device".
void Check(cudaError_t error, const char* doing);

// Fills *error, truncating the message to fit, and returns the status.
int32_t Report(posenc_status status, const char* message, posenc_error* error);

// Runs `work` and returns POSENC_OK. Converts every exception to a status and fills *error.
template <class Work>
int32_t Guarded(posenc_error* error, const Work& work) noexcept {
  try {
    work();
    return POSENC_OK;
  } catch (const Failure& failure) {
    return Report(failure.status(), failure.what(), error);
  } catch (const std::bad_alloc&) {
    return Report(POSENC_OUT_OF_MEMORY, "no memory is left on the host", error);
  } catch (const std::exception& exception) {
    return Report(POSENC_UNSUPPORTED, exception.what(), error);
  } catch (...) {
    return Report(POSENC_UNSUPPORTED, "an unknown exception", error);
  }
}

}  // namespace posenc::cuda
