// What a function of the plugin fails with: thrown within it, and caught where C begins.
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

// What a caller can do about an error of CUDA: errors after which the process can use the device no more are
// POSENC_DEVICE_LOST; what is neither that nor a lack of memory leaves the work to others.
posenc_status StatusOf(cudaError_t error);

// Throws unless `error` is none. `doing` begins the message: "copying to the device".
void Check(cudaError_t error, const char* doing);

// Fills *error and returns the status.
int32_t Report(posenc_status status, const char* message, posenc_error* error);

// Runs the work, of which nothing is thrown further.
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
