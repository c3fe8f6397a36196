// Memory that requests lay in, kept for the next.
#pragma once

#include <cstdint>

namespace posenc::server {

// gRPC takes a large request apart into thousands of small pieces. By default the C library gives their memory back
// after each call, and has it filled with fresh pages for the next; and it keeps as many heaps as there are threads,
// each with holes of its own. From now on it keeps about so many bytes, in two heaps.
void KeepFreedMemory(int64_t bytes);
// Gives back what it keeps.
void ReturnFreedMemory();

}  // namespace posenc::server
