// What a call is compared with: servers of the same gRPC library that do less, or the same in the usual way.
#pragma once

#include <string>

namespace posenc::bench {

// Serves ApplyRotary until the process ends:
//   "echo"   hands the request's slices back
//   "copy"   copies the request once, into a buffer that was used before: the least that any computed answer costs
//   "typed"  the same rotation behind protobuf's own messages
// Writes the port to `port_file`. False where there is no such kind, or no port.
bool Serve(const std::string& kind, const std::string& port_file);

}  // namespace posenc::bench
