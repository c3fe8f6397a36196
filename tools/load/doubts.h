// What makes a step's figures less than they seem: the client's own state while it measured.
#pragma once

#include <cstdint>

#include "tools/load/results.h"

namespace posenc::load {

struct ClientState {
  double busiest_thread = 0;   // of a processor
  double offered = 1;          // of the rate that was asked for
  int64_t most_in_flight = 0;  // calls
  int64_t connections = 1;
};

// As warnings to a step's results.
void AddDoubts(const ClientState& client, Results* results);

}  // namespace posenc::load
