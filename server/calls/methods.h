// The table of a server's methods.
#pragma once

#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/access/policy.h"
#include "server/calls/rpc.h"
#include "server/metrics/call_metrics.h"

namespace posenc::server {

struct Method {
  MakeReactor make;
  bool reads_first = true;  // the client's one message is read before `make` is called
  // The reactor asks Admission or limits its calls itself. False: the call counts among UnadmittedCalls until it ends.
  bool admits = true;
  std::optional<Right> right;        // that a caller needs under a policy; absent: none, as for health
  MethodMetrics* metrics = nullptr;  // set by CompletionQueueLoop
};

// Methods by path, for example "/posenc.v1.PositionalEncodingService/ApplyRotary".
using Methods = absl::flat_hash_map<std::string, Method>;

}  // namespace posenc::server
