// Benchmark of calls with tensors in shared memory, against the same work in process.
#pragma once

#include <cstddef>
#include <string>

#include "bench/measure.h"
#include "bench/wire/traffic.h"

namespace posenc::bench {

// Prints the rows of a rotation of `bytes` bytes from one part of a shared memory region to another. `posenc` calls the
// server that owns `side_socket`. `echo` calls the server with the cheapest empty call.
void MeasureShared(const std::string& name, size_t bytes, const std::string& side_socket, const Effort& effort,
                   Caller* posenc, Caller* echo);

}  // namespace posenc::bench
