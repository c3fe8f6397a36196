// Credentials of gRPC channels.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "posenc/client/tls.h"

namespace posenc {

// Returns the credentials of a channel, and sets the server's name in `arguments`. Without encryption if `tls` is
// absent, and for the address of a Unix socket, which posenc-server never encrypts. A token is sent over TLS and Unix
// sockets only.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const std::string& address, const std::optional<Tls>& tls,
                                                             grpc::ChannelArguments* arguments);

}  // namespace posenc
