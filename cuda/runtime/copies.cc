#include "cuda/runtime/copies.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/runtime/error.h"

namespace posenc::cuda {
namespace {

constexpr uint64_t kChunk = uint64_t{2} << 20;

}  // namespace

void CheckPieces(const posenc_tensor& tensor, uint64_t bytes) {
  uint64_t given = 0;
  for (uint64_t i = 0; i < tensor.count; ++i) given += tensor.pieces[i].bytes;
  if (given != bytes) {
    throw Failure(POSENC_UNSUPPORTED,
                  "a tensor of " + std::to_string(bytes) + " bytes is given as " + std::to_string(given));
  }
  if (bytes > kSlabBytes) {
    throw Failure(POSENC_UNSUPPORTED, std::to_string(bytes) + " bytes are more than the " + std::to_string(kSlabBytes) +
                                          " that one call can have");
  }
}

void UploadPieces(Slot& slot, const posenc_tensor& tensor, uint64_t bytes, void* to) {
  const posenc_piece* piece = tensor.pieces;
  uint64_t used = 0;  // bytes used of the current piece
  for (uint64_t begin = 0; begin < bytes; begin += kChunk) {
    const uint64_t end = std::min(begin + kChunk, bytes);
    for (uint64_t at = begin; at < end;) {
      const uint64_t count = std::min(end - at, piece->bytes - used);
      std::memcpy(slot.staging + at, static_cast<const std::byte*>(piece->data) + used, count);
      at += count;
      used += count;
      if (used == piece->bytes) {
        ++piece;
        used = 0;
      }
    }
    Check(cudaMemcpyAsync(static_cast<std::byte*>(to) + begin, slot.staging + begin, end - begin,
                          cudaMemcpyHostToDevice, slot.stream),
          "copying to the device");
  }
}

void DownloadToStaging(Slot& slot, const void* from, uint64_t bytes) {
  Check(cudaMemcpyAsync(slot.staging, from, bytes, cudaMemcpyDeviceToHost, slot.stream), "copying from the device");
}

void StagingToPieces(const Slot& slot, const posenc_tensor& tensor) {
  const std::byte* from = slot.staging;
  for (uint64_t i = 0; i < tensor.count; ++i) {
    if (tensor.pieces[i].bytes == 0) continue;
    std::memcpy(tensor.pieces[i].data, from, tensor.pieces[i].bytes);
    from += tensor.pieces[i].bytes;
  }
}

void* Arrays::UploadBytes(const void* from, uint64_t bytes) {
  if (from == nullptr || bytes == 0) return nullptr;
  const Scratch& array = arrays_.emplace_back(slot_, bytes);
  Check(cudaMemcpyAsync(array.data(), from, bytes, cudaMemcpyHostToDevice, slot_.stream), "copying to the device");
  return array.data();
}

}  // namespace posenc::cuda
