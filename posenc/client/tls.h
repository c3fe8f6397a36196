// TLS of connections to a server.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/status/statusor.h"

namespace posenc {

// Paths of PEM files.
struct TlsFiles {
  std::string ca;           // CAs of the server's certificate; empty: gRPC's default, as a rule the system's CAs
  std::string certificate;  // the client's certificate and its intermediate CAs; empty: none
  std::string key;          // the certificate's key
};

// Contents of these files, and the server's name.
struct Tls {
  std::string ca, certificate, key;
  // Name that the server's certificate must have; empty: that of the address.
  std::string server_name;
};

// Reads the files. Returns INVALID_ARGUMENT naming a file that cannot be read or used, or if a key or a certificate has
// no counterpart.
absl::StatusOr<Tls> ReadTlsFiles(const TlsFiles& files);

// Returns the credentials of a channel, and sets the server's name in `arguments`. Insecure if `tls` is absent, and for
// the address of a Unix socket, which posenc-server never encrypts.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const std::string& address, const std::optional<Tls>& tls,
                                                             grpc::ChannelArguments* arguments);

}  // namespace posenc
