// Calls of one method in a closed loop, bytes in and bytes out: no message is parsed, so that what is timed is the
// transport and the server.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace posenc::bench {

struct Load {
  std::vector<double> seconds;  // of each call, sorted
  double elapsed = 0;           // of all

  // p in 0 .. 1.
  double Percentile(double p) const;
  double CallsPerSecond() const { return static_cast<double>(seconds.size()) / elapsed; }
};

// A connection of its own. One thread at a time.
class Caller {
 public:
  // Of PositionalEncodingService's methods.
  Caller(const std::string& address, const std::string& method);

  // Keeps `concurrency` calls in flight until `seconds` have passed and `calls` have ended. `request` gives each
  // call's; an error ends the program.
  Load Run(const std::function<const grpc::ByteBuffer&()>& request, size_t concurrency, double seconds, size_t calls);
  Load Run(const grpc::ByteBuffer& request, size_t concurrency, double seconds, size_t calls) {
    return Run([&]() -> const grpc::ByteBuffer& { return request; }, concurrency, seconds, calls);
  }
  // One call after the other until told to stop.
  void RunUntil(const std::atomic<bool>& stop, const grpc::ByteBuffer& request);

 private:
  const std::string method_;
  grpc::GenericStub stub_;
};

}  // namespace posenc::bench
