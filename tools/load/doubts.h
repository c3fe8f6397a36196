// Warnings about steps whose figures the state of the client may have distorted.
#pragma once

#include <cstdint>

#include "tools/load/results.h"

namespace posenc::load {

struct ClientState {
  double busiest_thread = 0;   // share of one processor
  double offered = 1;          // share of the requested rate
  int64_t most_in_flight = 0;  // calls
  int64_t connections = 1;
  int64_t abandoned = 0;  // calls that had not ended well after their deadline
};

// Adds warnings to the results of one step.
void AddDoubts(const ClientState& client, Results* results);

}  // namespace posenc::load
