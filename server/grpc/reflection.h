// grpc.reflection.v1.ServerReflection and v1alpha, whose messages are identical: describes the services to clients.
#pragma once

#include "server/calls/call.h"
#include "server/calls/methods.h"

namespace posenc::server {

// `core` must outlive the RPCs.
void AddReflectionTo(Methods* methods, Core* core);

}  // namespace posenc::server
