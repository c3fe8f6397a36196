// The Open Inference Protocol over HTTP/REST (docs/oip.md): each path is a method of inference.GRPCInferenceService.
#pragma once

#include <memory>

#include "server/calls/inference_service.h"
#include "server/calls/methods.h"
#include "server/http/message.h"

namespace posenc::server {

// Answers requests by the service's methods, which must be in `methods`, by the same rules: rights, admission, limits.
// `authorize`: null if everybody may call. `core` and what the methods use must outlive the requests.
HttpHandler MakeRestHandler(Core* core, const Methods& methods, Authorize authorize);

}  // namespace posenc::server
