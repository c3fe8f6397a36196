// StreamApplyRotary: a header, then chunks, each answered by itself.
#pragma once

#include <memory>

#include "posenc/wire/walker.h"
#include "server/grpc/call.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

// Chunks are answered in the order in which they come. At most two are in the server's memory: the next one is read
// while one is computed, and none while two wait. Each is charged like a call's request and answer; where that finds no
// room, it waits for the stream's own answers to leave, and without any the stream ends with UNAVAILABLE. `stripper` is
// of StreamApplyRotaryRequest.
std::unique_ptr<Reactor> MakeRotaryStream(Core* core, const wire::Stripper& stripper, Rpc* rpc);

}  // namespace posenc::server
