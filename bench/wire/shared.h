// Calls whose tensors lie in shared memory, beside the same work in this process.
#pragma once

#include <cstddef>
#include <string>

#include "bench/measure.h"
#include "bench/wire/traffic.h"

namespace posenc::bench {

// Prints the rows of a rotation of so many bytes from one place of a region to another. `posenc` calls the server whose
// side socket this is; `echo` calls one that an empty message costs least.
void MeasureShared(const std::string& name, size_t bytes, const std::string& side_socket, const Effort& effort,
                   Caller* posenc, Caller* echo);

}  // namespace posenc::bench
