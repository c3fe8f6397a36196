// Credentials of an RPC's caller, from its connection and its headers.
#pragma once

#include <string_view>

#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/access/proxy_headers.h"
#include "server/calls/rpc.h"

namespace posenc::server {

// True if the RPC came over the socket of --trusted-proxy. Its acceptor has gRPC's local credentials, which no other
// has.
bool IsOfTrustedProxy(const grpc::ServerContextBase& context);

// True if a header says that the call came by a proxy. A caller may lie, so this takes rights away and gives none.
bool ComesByProxy(const grpc::ServerContextBase& context);

// `peer`: the context's, which gRPC forgets when the call is cancelled. The context keeps the rest from the first call
// of this function on, so later ones may come from other threads.
CallerCredentials CredentialsOf(const Rpc& rpc, std::string_view peer, const grpc::ServerContextBase& context);

}  // namespace posenc::server
