// grpc.reflection.v1.ServerReflection and v1alpha, whose messages are identical: describes the services to clients.
#pragma once

#include "server/grpc/completion_queue.h"

namespace posenc::server {

void AddReflectionTo(Methods* methods);

}  // namespace posenc::server
