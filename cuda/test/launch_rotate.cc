// LaunchRotate for peers.py, which benchmarks it against other implementations on their stream.
#include "cuda/launch.h"

extern "C" __attribute__((visibility("default"))) int posenc_test_rotate(const posenc::cuda::RotateArguments* work,
                                                                         cudaStream_t stream) {
  return LaunchRotate(*work, stream);
}

extern "C" __attribute__((visibility("default"))) const uint64_t posenc_test_rotate_size =
    sizeof(posenc::cuda::RotateArguments);
