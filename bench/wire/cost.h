// Rows about processor time: user and system seconds of posenc's server beside those of a server that copies, and of
// their clients.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "bench/measure.h"

namespace posenc::bench {

struct Server {
  std::string address;
  pid_t process;
};

struct CostServers {
  Server posenc, copy;            // over TCP
  Server posenc_unix, copy_unix;  // the same processes over Unix sockets
  Server posenc_tls, copy_tls;
  std::string root_certificates;     // PEM, for TLS
  std::string shared_memory_socket;  // of `posenc`
};

// Measures the cases whose names are `wanted`.
void MeasureCost(const CostServers& servers, const Effort& effort,
                 const std::function<bool(const std::string& name)>& wanted);

}  // namespace posenc::bench
