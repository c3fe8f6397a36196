// The table of a server's methods.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/access/policy.h"
#include "server/calls/rpc.h"
#include "server/metrics/call_metrics.h"

namespace posenc::server {

// Adds a trailer to an RPC.
using AddTrailer = std::function<void(const std::string& name, const std::string& value)>;
// Decides who may call. Returns the caller's identity, or the status of the refusal; may add trailers. Without
// AddTrailer it is asked for a further message of a stream. Thread-safe.
using Authorize = std::function<absl::StatusOr<std::shared_ptr<const Identity>>(
    const CallerCredentials&, Right right, const std::string& method, const AddTrailer&)>;

struct Method {
  MakeReactor make;
  bool reads_first = true;  // the client's one message is read before `make` is called
  // The reactor asks Admission or limits its calls itself. False: the call counts among UnadmittedCalls until it ends.
  bool admits = true;
  std::optional<Right> right;        // that a caller needs under a policy; absent: none, as for health
  MethodMetrics* metrics = nullptr;  // set by CompletionQueueLoop

  // Whoever asks for health asks all the time: that begins no traces.
  bool is_probe() const { return !right; }
};

// Methods by path, for example "/posenc.v1.PositionalEncodingService/ApplyRotary".
using Methods = absl::flat_hash_map<std::string, Method>;

}  // namespace posenc::server
