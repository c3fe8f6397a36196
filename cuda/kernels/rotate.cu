// Rotation of pairs: by 16-byte vectors where the layout allows it, else pair by pair.
#include "cuda/kernels/rotate_pairwise.h"
#include "cuda/kernels/rotate_vectors.h"

namespace posenc::cuda {

cudaError_t LaunchRotate(const RotateArguments& work, cudaStream_t stream) {
  if (work.tokens == 0 || work.heads == 0 || work.head_dim == 0) return cudaSuccess;
  return TakesVectors(work) ? LaunchVectors(work, stream) : LaunchPairwise(work, stream);
}

}  // namespace posenc::cuda
