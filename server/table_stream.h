// StreamTable: tiles of rows, one at a time.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/call.h"

namespace posenc::server {

// A tile is computed when the one before it has gone to the transport, so a client that does not read holds one. Bytes
// for one tile are charged at the start and kept: an overload that comes later does not break the stream off.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTableStream(Core* core, const wire::Stripper& stripper,
                                                             grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request);

}  // namespace posenc::server
