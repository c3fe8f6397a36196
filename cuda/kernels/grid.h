// Layout of work over blocks and threads.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "posenc/device/plugin_abi.h"
#include "posenc/kernels/convert.h"

namespace posenc::cuda {

// Threads per block, and resident blocks per multiprocessor (for __launch_bounds__). More small blocks fit where
// threads need many registers. Without kLeastBlocks the compiler would spill registers in those kernels rather than
// have so few blocks.
constexpr unsigned kBlockThreads = 128, kLeastBlocks = 4;
// Blocks that keep the largest devices evenly busy. With fewer blocks than work, a thread does several pieces and loads
// once what these share.
constexpr uint64_t kBlocksWanted = 8192;
constexpr uint64_t kMostBlocksX = 0x7fffffff, kMostBlocksY = 0xffff;

// Blocks along x and y, clamped to the device limits. Kernels loop over the rest with a grid stride.
inline dim3 Grid(uint64_t x, uint64_t y = 1) {
  return dim3(static_cast<unsigned>(std::min(x, kMostBlocksX)), static_cast<unsigned>(std::min(y, kMostBlocksY)));
}

inline uint64_t Quotient(uint64_t dividend, uint64_t divisor) { return (dividend + divisor - 1) / divisor; }

// A block of at most kBlockThreads threads: up to `columns` wide, and at most `rows` rows of them.
inline dim3 Block(uint64_t columns, uint64_t rows) {
  const auto width = static_cast<unsigned>(std::clamp<uint64_t>(columns, 1, kBlockThreads));
  return dim3(width, static_cast<unsigned>(std::clamp<uint64_t>(rows, 1, kBlockThreads / width)));
}

// Calls launch(format) with the format as a type and returns its launch error; cudaErrorInvalidValue for FP64.
template <class Launch>
cudaError_t WithFormat(posenc_dtype dtype, const Launch& launch) {
  switch (dtype) {
    case POSENC_FP32: launch(Float32()); break;
    case POSENC_FP16: launch(Float16()); break;
    case POSENC_BF16: launch(BFloat16()); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace posenc::cuda
