// Files and names of TLS connections to a server.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace posenc {

// Paths of files, in PEM but for the token's.
struct TlsFiles {
  std::string ca;           // CAs of the server's certificate; empty: gRPC's default, as a rule the system's CAs
  std::string certificate;  // the client's certificate and its intermediate CAs; empty: none
  std::string key;          // the certificate's key
  std::string token;        // a bearer token, alone in its file; empty: none
};

// Contents of these files, and the server's name.
struct Tls {
  std::string ca, certificate, key;
  // Is sent with every call, in the header "authorization".
  std::string token;
  // Name that the server's certificate must have; empty: that of the address.
  std::string server_name;
};

// Reads the files. Returns INVALID_ARGUMENT naming a file that cannot be read or used, or if a key or a certificate has
// no counterpart. The file of a token may end with a line break.
absl::StatusOr<Tls> ReadTlsFiles(const TlsFiles& files);

}  // namespace posenc
