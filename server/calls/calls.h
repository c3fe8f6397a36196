// Reactors for the kinds of calls: one answer, a stream of tiles of rows, a stream of rotated chunks.
#pragma once

#include <memory>

#include "posenc/service/operations.h"
#include "server/calls/call.h"
#include "server/calls/rpc.h"
#include "server/calls/unary_step.h"

namespace posenc::server {

// Serves the call once it is admitted: on a pool thread, or on the receiving thread (see wire::Scheduling).
std::unique_ptr<Reactor> MakeUnaryCall(Core* core, UnaryMethod method, Rpc* rpc, grpc::ByteBuffer* request);
// Overload for an RPC of posenc.v1. `operation` must outlive the call.
std::unique_ptr<Reactor> MakeUnaryCall(Core* core, const wire::UnaryOperation& operation, Rpc* rpc,
                                       grpc::ByteBuffer* request);

// Serves a stream of tiles. A tile is computed after the previous one has gone to the transport (backpressure), so a
// client that does not read holds one. One tile's bytes are charged for the whole stream: later overload cannot end it.
// `operation` must outlive the call.
std::unique_ptr<Reactor> MakeTileStream(Core* core, const wire::TileOperation& operation, Rpc* rpc,
                                        grpc::ByteBuffer* request);

// Serves StreamApplyRotary: a header, then chunks, in order. At most two are in the server's memory: the next one is
// read while one is computed, and none while two wait. Each is charged like a call's request and answer. If the charge
// does not fit, the chunk waits until the stream's own answers are sent; if there are none, the stream ends with
// UNAVAILABLE.
std::unique_ptr<Reactor> MakeRotaryStream(Core* core, Rpc* rpc);

}  // namespace posenc::server
