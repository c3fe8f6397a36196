// posenc.v1.PositionalEncodingService: what each of its methods is served by.
#pragma once

#include "server/grpc/call.h"
#include "server/grpc/polling.h"
#include "server/grpc/server_devices.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

inline constexpr char kServiceName[] = "posenc.v1.PositionalEncodingService";

// `memory`: null where shared memory is off. All must outlive the methods' RPCs.
void AddServiceTo(Methods* methods, Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices);

}  // namespace posenc::server
