// Handlers of the methods of posenc.v1.PositionalEncodingService.
#pragma once

#include "server/grpc/call.h"
#include "server/grpc/completion_queue.h"
#include "server/grpc/server_devices.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

inline constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";

// Adds the service's methods. `memory` is null if shared memory is off. All pointers must outlive the methods' RPCs.
void AddServiceTo(Methods* methods, Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices);

}  // namespace posenc::server
