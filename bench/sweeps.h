// Memory sweeps: the minimum cost of moving bytes, used as the physical limit for posenc's loops. They only load and
// store whole vectors. Memory must be 64-byte aligned and a multiple of 256 bytes.
#pragma once

#include <cstddef>

namespace posenc::bench {

// Copies with streaming stores, which bypass the caches.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);

// Write non-zero bytes, because libc memset writes zeros faster than memory allows. StreamStore bypasses the caches.
void Store(std::byte* to, size_t bytes);
void StreamStore(std::byte* to, size_t bytes);

// Reads, changes and writes back every vector.
void ReadModifyWrite(std::byte* data, size_t bytes);

// Reads both, XORs `other` into `data` and writes `data` back.
void AddTo(std::byte* data, const std::byte* other, size_t bytes);

}  // namespace posenc::bench
