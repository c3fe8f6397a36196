// Handlers of the methods of posenc.v1.PositionalEncodingService.
#pragma once

#include "posenc/service/operations.h"
#include "server/grpc/call.h"
#include "server/grpc/completion_queue.h"
#include "server/grpc/server_devices.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

// Adds the service's methods. `memory` is null if shared memory is off. All pointers and `operations` must outlive the
// methods' RPCs.
void AddServiceTo(Methods* methods, Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices,
                  const wire::Operations& operations);

}  // namespace posenc::server
