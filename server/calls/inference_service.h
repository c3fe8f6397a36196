// Handlers of the methods of inference.GRPCInferenceService, the Open Inference Protocol (docs/oip.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/calls/call.h"
#include "server/calls/infer_keys.h"
#include "server/calls/methods.h"
#include "server/calls/unary_step.h"
#include "server/oip/infer_answer.h"
#include "server/oip/models.h"
#include "server/oip/named_memory.h"

namespace posenc::server {

inline constexpr char kInferenceServiceName[] = "inference.GRPCInferenceService";

struct InferenceParts {
  Core* core;
  Models* models;
  NamedMemory* memory;
  std::function<bool()> is_ready;
  std::unique_ptr<InferKeys> keys = std::make_unique<InferKeys>();
};

// The scope of the names of a caller's shared memory: its identity, or else its address; empty if it is not on this
// host.
std::string MemoryScopeOf(const Rpc& rpc);

// Describes the methods, in the order of the service.
const std::vector<wire::RpcDescription>& InferenceRpcs();
// Describes the method of this name. Aborts if there is none.
const wire::RpcDescription& InferenceRpc(const std::string& name);

// Method of ModelInfer, and of one message of ModelStreamInfer. `parts` must outlive its calls.
UnaryMethod InferMethod(const InferenceParts* parts, InferRpc rpc);

// Serves ModelStreamInfer: each message is a request of its own, which is admitted, limited and counted as a call of
// ModelInfer. Several are in work at a time; the answers come in the requests' order. A request that fails does not end
// the stream, unless the server drains. `parts` must outlive it.
std::unique_ptr<Reactor> MakeInferStream(const InferenceParts* parts, Rpc* rpc);

// Adds the service's methods.
void AddInferenceTo(Methods* methods, const std::shared_ptr<const InferenceParts>& parts);

}  // namespace posenc::server
