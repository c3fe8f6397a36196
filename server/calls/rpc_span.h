// An RPC's span in the words of OpenTelemetry's semantic conventions for gRPC.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/support/status.h"
#include "server/calls/methods.h"
#include "server/calls/rpc.h"
#include "server/trace/tracer.h"

namespace posenc::server {

// Begins the span of an RPC that has come. Returns null if there is no tracer, or it does not sample the RPC. `path`:
// "/package.Service/Method". `method`: null if the server has no such method.
std::unique_ptr<CallSpan> BeginSpan(const Tracer* tracer, const Rpc& rpc, const std::string& path,
                                    const Method* method);
// Says how it ended.
void SetStatus(const grpc::Status& status, CallSpan* span);

// Parts of these, for calls over HTTP: who calls, and the details of an error.
void SetPeer(const std::string& connection, bool is_unix, CallSpan* span);
void SetErrorDetails(const grpc::Status& status, CallSpan* span);

}  // namespace posenc::server
