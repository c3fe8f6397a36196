// Closed-loop load of one method with raw bytes. No message is parsed, so only the transport and the server are timed.
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

// Prints what failed and ends the program.
[[noreturn]] void Fail(const std::string& what);

struct Load {
  std::vector<double> seconds;  // latency of each call, sorted
  double elapsed = 0;           // duration of the whole run, seconds

  // Returns the latency in seconds at quantile p, 0 .. 1.
  double Percentile(double p) const;
  double CallsPerSecond() const { return static_cast<double>(seconds.size()) / elapsed; }
};

struct Connections {
  size_t count = 1;
  std::string root_certificates;  // PEM; empty: no TLS
};

// A client of one method. Not thread-safe.
class Caller {
 public:
  // Opens the connections, which its calls use in turn. `method` is a method name of PositionalEncodingService, or the
  // path of any method.
  Caller(const std::string& address, const std::string& method, const Connections& connections = {});
  // Shares the other one's connections.
  Caller(const Caller& other, const std::string& method);

  // Keeps `concurrency` calls in flight until `seconds` have passed and `calls` have ended. `request` returns each
  // call's request. An error ends the program.
  Load Run(const std::function<const grpc::ByteBuffer&()>& request, size_t concurrency, double seconds, size_t calls);
  Load Run(const grpc::ByteBuffer& request, size_t concurrency, double seconds, size_t calls) {
    return Run([&]() -> const grpc::ByteBuffer& { return request; }, concurrency, seconds, calls);
  }
  // Makes one call after another until `stop` is true.
  void RunUntil(const std::atomic<bool>& stop, const grpc::ByteBuffer& request);

 private:
  Caller(std::vector<grpc::GenericStub> stubs, const std::string& method);

  const std::string method_;
  std::vector<grpc::GenericStub> stubs_;  // one per connection
};

}  // namespace posenc::bench
