// The running server: gRPC's listeners, the service, health and reflection, and graceful shutdown.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "posenc/service/operations.h"
#include "server/access/access.h"
#include "server/calls/call.h"
#include "server/core/config.h"
#include "server/core/reload_thread.h"
#include "server/core/reserve_thread.h"
#include "server/grpc/completion_queue.h"
#include "server/grpc/health.h"
#include "server/grpc/server_devices.h"
#include "server/grpc/service.h"
#include "server/http/http_server.h"
#include "server/listen/certificates.h"
#include "server/listen/listener.h"
#include "server/metrics/probe_endpoint.h"
#include "server/metrics/state_metrics.h"
#include "server/oip/models.h"
#include "server/oip/named_memory.h"
#include "server/shared_memory/registry.h"
#include "server/shared_memory/side_socket.h"

namespace posenc::server {

class Server {
 public:
  // Listens and serves. Returns INVALID_ARGUMENT naming --listen or --shared-memory-socket if an address is bad or
  // taken, and naming --tls-... if a file is. `operations` must outlive the server; tests pass their own.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config,
                                                       const wire::Operations& operations = wire::LibraryOperations());
  // Shuts down at once if Drain() was not called.
  ~Server();

  // The first TCP port; 0 if there is none.
  int port() const { return listener_->port(); }
  // Ports of --http-listen, --metrics-listen and --health-listen; 0 if there is none.
  int http_port() const { return listener_->http_port(); }
  int metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }
  int health_port() const { return probes_ == nullptr ? 0 : probes_->port(); }
  // Names of the models of --model-repository that are ready, without their encodings, for the log: "llama,bloom".
  std::string ReadyModels() const;
  Admission::Counters counters() const { return core_.admission->counters(); }
  // Number of connections that have ended since the start.
  int64_t CountEndedConnections();
  // Sets health to NOT_SERVING while threads are stuck (--stuck-thread-seconds) or no connection can be accepted. Makes
  // threads load a changed policy and changed certificates, and does not wait for them. Call it every few seconds.
  void Maintain();

  // Makes a thread read --model-repository again, and does not wait for it. If that fails, the models stay, and the log
  // says why.
  void ReadModels() { read_models_->Ask(); }
  // Ends these threads, and the side socket. Call it once, after Drain(). Returns false if a file system hangs, so that
  // one of them has not ended: the server must not be destroyed.
  bool EndFiles();

  // Graceful shutdown: sets health to NOT_SERVING, waits --drain-notice, stops listening, serves the open connections
  // until no request is in progress or a quarter of --drain-timeout is over, closes each connection as it falls idle,
  // refuses new calls meanwhile (UNAVAILABLE, DRAINING), and cancels what is left after --drain-timeout. Calls that
  // still wait or compute after three quarters of it are ended with an error. Returns true if none was cancelled. If it
  // has not returned, and the server is not destroyed, five seconds after that, a watchdog ends the process with
  // status 1.
  bool Drain();

 private:
  using Acceptor = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;

  explicit Server(const Config& config);
  // Listens at --metrics-listen and --health-listen.
  absl::Status StartProbes(const ServerParts& parts);
  absl::Status StartTraces();
  // Serves what comes to --http-listen.
  void StartRest(const Methods& methods);
  Authorize MakeAuthorize();
  std::set<TcpEnd> BusyConnections(bool with_uploads);

  class Watchdog;
  std::unique_ptr<Watchdog> watchdog_;  // destroyed last
  ServerDevices devices_;
  std::unique_ptr<AccessControl> access_;  // null: everybody may call; the pool of core_ tells it what it has computed
  Core core_;
  std::shared_ptr<SharedMemoryRegistry> memory_;  // null: shared memory is off
  std::unique_ptr<NamedMemory> named_memory_;
  std::unique_ptr<Models> models_;
  Health health_;
  std::shared_ptr<CertificateStore> certificates_;                               // null: no TLS
  std::unique_ptr<ReloadThread> read_models_, read_policy_, read_certificates_;  // null: there is nothing to read
  std::shared_ptr<grpc::ServerCredentials> credentials_;                         // outlive grpc_server_
  // Give connections to gRPC; tls_ is null without TLS, proxied_ without --trusted-proxy.
  Acceptor plain_, tls_, proxied_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<CompletionQueueLoop> polling_;  // destroyed before the members that its calls use
  std::unique_ptr<HttpServer> rest_;              // null: no --http-listen
  std::unique_ptr<SideSocket> side_socket_;
  std::atomic<bool> healthy_ = true;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<StateMetrics> state_metrics_;
  std::unique_ptr<ProbeEndpoint> metrics_, probes_;  // null: not asked for
  ReserveThread closing_;                            // of side_socket_; destroyed first
};

}  // namespace posenc::server
