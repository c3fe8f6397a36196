// Reference servers for the call benchmark, built on the same gRPC library: they do less work, or the same with
// protobuf messages.
#pragma once

#include <string>

namespace posenc::bench {

struct Listening {
  std::string port_file;
  std::string unix_socket;       // path, beside the port; empty: none
  std::string certificate, key;  // paths of PEM files, for TLS on the port; empty: none
};

// Returns the file's bytes; empty if it cannot be read.
std::string ReadFile(const std::string& path);

// Serves ApplyRotary until the process ends:
//   "echo"   returns the request's slices
//   "copy"   copies the request once into a pooled buffer: the minimum cost of any computed answer
//   "typed"  the same rotation with parsed protobuf messages
// Writes the port to the port file. Returns false if `kind` is unknown, or a file or the server fails.
bool Serve(const std::string& kind, const Listening& listening);

}  // namespace posenc::bench
