// Credentials of an RPC's caller, from its connection and its headers.
#pragma once

#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

// Headers that only a trusted proxy may set: the caller's address, and its verified client certificate (DER in base64).
inline constexpr char kProxiedPeer[] = "x-posenc-peer";
inline constexpr char kProxiedCertificate[] = "x-posenc-client-cert";

// True if the RPC came over the socket of --trusted-proxy. Its acceptor has gRPC's local credentials, which no other
// has.
bool IsOfTrustedProxy(const grpc::ServerContextBase& context);

Caller CallerOf(const Rpc& rpc, const grpc::ServerContextBase& context);

}  // namespace posenc::server
