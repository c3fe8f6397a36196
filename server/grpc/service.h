// Handlers of the methods of posenc.v1.PositionalEncodingService.
#pragma once

#include "posenc/service/operations.h"
#include "server/access/access.h"
#include "server/calls/call.h"
#include "server/calls/methods.h"
#include "server/grpc/server_devices.h"
#include "server/listen/certificates.h"
#include "server/listen/listener.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

// Parts of the server that GetServerInfo describes.
struct ServerParts {
  const ServerDevices* devices;
  Listener* listener;
  const SharedMemoryRegistry* memory;    // null: shared memory is off
  const CertificateStore* certificates;  // null: no TLS
  const AccessControl* access;           // null: no policy
};

// Writes what GetServerInfo answers.
void DescribeServer(const Core& core, const ServerParts& parts, v1::GetServerInfoResponse* response);

// Adds the service's methods. All pointers and `operations` must outlive the methods' RPCs.
void AddServiceTo(Methods* methods, Core* core, const ServerParts& parts, const wire::Operations& operations);

}  // namespace posenc::server
