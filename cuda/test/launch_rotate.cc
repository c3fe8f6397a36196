// The rotation's kernel for peers.py, which measures it beside others on their stream.
#include "cuda/launch.h"

extern "C" __attribute__((visibility("default"))) int posenc_test_rotate(const posenc::cuda::RotateArguments* work,
                                                                         cudaStream_t stream) {
  return LaunchRotate(*work, stream);
}

extern "C" __attribute__((visibility("default"))) const uint64_t posenc_test_rotate_size =
    sizeof(posenc::cuda::RotateArguments);
