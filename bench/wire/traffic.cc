#include "bench/wire/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace posenc::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<grpc::GenericStub> Connect(const std::string& address, const Connections& connections) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no shared connections
  const auto credentials = connections.root_certificates.empty()
                               ? grpc::InsecureChannelCredentials()
                               : grpc::SslCredentials({connections.root_certificates, "", ""});
  std::vector<grpc::GenericStub> stubs;
  while (stubs.size() < connections.count) {
    stubs.emplace_back(grpc::CreateCustomChannel(address, credentials, arguments));
  }
  return stubs;
}

struct Exchange {
  grpc::GenericStub* stub = nullptr;
  grpc::ClientContext context;
  grpc::ByteBuffer answer;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  Clock::time_point began;
};

}  // namespace

void Fail(const std::string& what) {
  fmt::print(stderr, "posenc-bench-wire: {}\n", what);
  std::_Exit(EXIT_FAILURE);
}

double Load::Percentile(double p) const {
  const auto last = static_cast<double>(seconds.size() - 1);
  return seconds[static_cast<size_t>(p * last + 0.5)];
}

Caller::Caller(std::vector<grpc::GenericStub> stubs, const std::string& method)
    : method_(method.starts_with('/') ? method : "/posenc.v1.PositionalEncodingService/" + method),
      stubs_(std::move(stubs)) {}

Caller::Caller(const std::string& address, const std::string& method, const Connections& connections)
    : Caller(Connect(address, connections), method) {}

Caller::Caller(const Caller& other, const std::string& method) : Caller(other.stubs_, method) {}

Load Caller::Run(const std::function<const grpc::ByteBuffer&()>& request, size_t concurrency, double seconds,
                 size_t calls) {
  grpc::CompletionQueue queue;
  const auto start = [&](grpc::GenericStub* stub) {
    auto* exchange = new Exchange;
    exchange->stub = stub;
    const grpc::ByteBuffer& bytes = request();
    exchange->began = Clock::now();
    exchange->reader = stub->PrepareUnaryCall(&exchange->context, method_, bytes, &queue);
    exchange->reader->StartCall();
    exchange->reader->Finish(&exchange->answer, &exchange->status, exchange);
  };
  Load load;
  const Clock::time_point begin = Clock::now();
  size_t in_flight = 0;
  for (; in_flight < concurrency; ++in_flight) start(&stubs_[in_flight % stubs_.size()]);
  void* tag = nullptr;
  for (bool ok = false; in_flight > 0 && queue.Next(&tag, &ok); --in_flight) {
    const std::unique_ptr<Exchange> exchange(static_cast<Exchange*>(tag));
    if (!exchange->status.ok()) Fail(fmt::format("{}: {}", method_, exchange->status.error_message()));
    load.seconds.push_back(Since(exchange->began));
    if (Since(begin) < seconds || load.seconds.size() + in_flight <= calls) {
      start(exchange->stub);
      ++in_flight;
    }
  }
  load.elapsed = Since(begin);
  std::sort(load.seconds.begin(), load.seconds.end());
  return load;
}

void Caller::RunUntil(const std::atomic<bool>& stop, const grpc::ByteBuffer& request) {
  while (!stop) Run(request, 1, 0, 1);
}

}  // namespace posenc::bench
