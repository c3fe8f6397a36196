// grpc.reflection.v1.ServerReflection, and v1alpha, whose messages are the same: what there is to call.
#pragma once

#include "server/grpc/polling.h"

namespace posenc::server {

void AddReflectionTo(Methods* methods);

}  // namespace posenc::server
