// xds.service.orca.v3.OpenRcaService: reports of the server's load to balancers that do not send it calls.
#pragma once

#include <chrono>
#include <cstddef>

#include "server/calls/methods.h"
#include "server/core/timers.h"
#include "server/metrics/load_meter.h"

namespace posenc::server {

// Callers share `most` streams; further ones are refused (UNAVAILABLE). A report that is not taken within
// `send_timeout` ends its stream. `meter` and `timers` must outlive the RPCs.
void AddLoadReportsTo(Methods* methods, LoadMeter* meter, size_t most, Timers* timers,
                      std::chrono::seconds send_timeout);

}  // namespace posenc::server
