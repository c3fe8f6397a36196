// Reference servers for the call benchmark, built on the same gRPC library: they do less work, or the same with
// protobuf messages.
#pragma once

#include <string>

namespace posenc::bench {

// Serves ApplyRotary until the process ends:
//   "echo"   returns the request's slices
//   "copy"   copies the request once into a pooled buffer: the minimum cost of any computed answer
//   "typed"  the same rotation with parsed protobuf messages
// Writes the port to `port_file`. Returns false if `kind` is unknown, or the server or `port_file` fails.
bool Serve(const std::string& kind, const std::string& port_file);

}  // namespace posenc::bench
