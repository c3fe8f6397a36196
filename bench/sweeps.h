// The least that moving bytes costs: the physical limits that posenc's own loops are held against. Nothing but loads
// and stores of whole vectors; 64-byte aligned memory, a multiple of 256 bytes.
#pragma once

#include <cstddef>

namespace posenc::bench {

// Stores that bypass the caches.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);

// Writes bytes that are not zero: libc's memset is faster for zeros than memory is.
void Store(std::byte* to, size_t bytes);
void StreamStore(std::byte* to, size_t bytes);

// Every vector read, changed and written back.
void ReadModifyWrite(std::byte* data, size_t bytes);

// Both read, the second changed by the first and written back.
void AddTo(std::byte* data, const std::byte* other, size_t bytes);

}  // namespace posenc::bench
