#include "tools/load/connections.h"

#include <pthread.h>

#include <chrono>
#include <ctime>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>

#include "posenc/client/credentials.h"
#include "posenc/client/errors.h"
#include "tools/load/clock.h"

namespace posenc::load {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const std::optional<Tls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // otherwise channels to one address share a connection
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, ChannelCredentials(address, tls, &arguments), arguments);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connections>> Connections::Open(const std::vector<std::string>& servers,
                                                               const std::optional<Tls>& tls, int connections,
                                                               int threads, double seconds,
                                                               std::function<void(Exchange*)> ended) {
  [[maybe_unused]] static const bool kept_up = (grpc_init(), true);  // never shut down, see client.cc
  std::unique_ptr<Connections> all(new Connections(std::move(ended)));
  for (int i = 0; i < threads; ++i) {
    all->readers_.push_back(std::make_unique<Reader>());
    Reader* reader = all->readers_.back().get();
    reader->thread = std::thread([&all = *all, reader] { all.Read(reader); });
  }
  for (int i = 0; i < connections; ++i) {
    for (const std::string& server : servers) {
      Reader* reader = all->readers_[all->connections_.size() % all->readers_.size()].get();
      const std::shared_ptr<grpc::Channel> channel = MakeChannel(server, tls);
      channel->GetState(/*try_to_connect=*/true);
      all->connections_.push_back(
          std::make_unique<Connection>(Connection{channel, grpc::GenericStub(channel), reader}));
    }
  }
  const auto deadline = std::chrono::system_clock::now() + FromSeconds(seconds);
  for (size_t i = 0; i < all->connections_.size(); ++i) {
    if (all->connections_[i]->channel->WaitForConnected(deadline)) continue;
    return FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "cannot connect"), servers[i % servers.size()], false);
  }
  return all;
}

Connections::~Connections() {
  for (const auto& reader : readers_) reader->queue.Shutdown();
  for (const auto& reader : readers_) {
    if (reader->thread.joinable()) reader->thread.join();  // not if the system refused the thread
  }
}

void Connections::Start(Exchange* exchange) {
  Connection& connection = *connections_[next_++ % connections_.size()];
  exchange->Start(connection.stub, &connection.reader->queue);
}

void Connections::Read(Reader* reader) {
  void* tag = nullptr;
  for (bool ok = false; reader->queue.Next(&tag, &ok);) {
    if (Exchange* exchange = Exchange::Proceed(tag, ok)) ended_(exchange);
  }
}

std::vector<double> Connections::CpuSeconds() const {
  std::vector<double> seconds;
  for (const auto& reader : readers_) {
    clockid_t clock = 0;
    seconds.push_back(pthread_getcpuclockid(reader->thread.native_handle(), &clock) == 0 ? load::CpuSeconds(clock) : 0);
  }
  return seconds;
}

}  // namespace posenc::load
