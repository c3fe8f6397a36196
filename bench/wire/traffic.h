// Closed-loop load of one method with raw bytes. No message is parsed, so only the transport and the server are timed.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace posenc::bench {

struct Load {
  std::vector<double> seconds;  // latency of each call, sorted
  double elapsed = 0;           // duration of the whole run, seconds

  // Returns the latency in seconds at quantile p, 0 .. 1.
  double Percentile(double p) const;
  double CallsPerSecond() const { return static_cast<double>(seconds.size()) / elapsed; }
};

// A client of one method. Not thread-safe.
class Caller {
 public:
  // Opens a connection. `method` is a method name of PositionalEncodingService, or the path of any method.
  Caller(const std::string& address, const std::string& method);
  // Shares the other one's connection.
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
  Caller(std::shared_ptr<grpc::Channel> channel, const std::string& method);

  const std::string method_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
};

}  // namespace posenc::bench
