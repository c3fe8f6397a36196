#include "server/metrics/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <exception>
#include <utility>

#include "posenc/base/status.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

constexpr size_t kMostConnections = 64;  // of one socket
constexpr size_t kMoreWhileClosing = 64;
constexpr unsigned kMostOfAddress = 16;
constexpr int kIdleSeconds = 10;
constexpr size_t kConnectionMemory = size_t{16} << 10;  // for headers
constexpr int kSendBuffer = 32 << 10;

// An answer that is not read waits in this process, whose connections are limited, not in the kernel; and once its
// connection is closed, the kernel does not keep the rest for longer than a connection may idle. Accepted connections
// inherit both.
void LimitUnsent(int listening) {
  const unsigned milliseconds = kIdleSeconds * 1000;
  setsockopt(listening, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  setsockopt(listening, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
}

void Cut(MHD_Connection* connection) {
  shutdown(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd, SHUT_RDWR);
}

// Called on the daemon's thread when a connection begins and when it has ended. The oldest makes room for another, so
// that clients which send or read slowly keep nobody out.
void Note(void* oldest_first, MHD_Connection* connection, void** /*of_connection*/,
          MHD_ConnectionNotificationCode code) {
  auto& open = *static_cast<std::deque<MHD_Connection*>*>(oldest_first);
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) return void(std::erase(open, connection));
  try {  // no exception may pass through libmicrohttpd
    open.push_back(connection);
  } catch (const std::exception& error) {
    LogException("http", error);
    return Cut(connection);
  }
  if (open.size() <= kMostConnections) return;
  Cut(open.front());
  open.pop_front();
}

MHD_Result Send(MHD_Connection* connection, const HttpServer::Response& answer) {
  MHD_Response* response =
      MHD_create_response_from_buffer(answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type);
  if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  const MHD_Result result = MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
  MHD_destroy_response(response);
  return result;
}

HttpServer::Response Answer(const HttpServer::Handlers& handlers, std::string_view url, std::string_view verb) {
  if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD) {
    return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "only GET\n"};
  }
  if (const auto handler = handlers.find(url); handler != handlers.end()) return handler->second();
  std::string paths = "no such path; there are:";
  for (const auto& [path, unused] : handlers) paths += " " + path;
  return {.status = MHD_HTTP_NOT_FOUND, .body = paths + "\n"};
}

MHD_Result Serve(void* handlers, MHD_Connection* connection, const char* url, const char* method,
                 const char* /*version*/, const char* /*body*/, size_t* /*body_size*/, void** /*of_request*/) {
  try {
    return Send(connection, Answer(*static_cast<const HttpServer::Handlers*>(handlers), url, method));
  } catch (const std::exception& error) {
    LogException("http", error);
    return MHD_NO;  // closes the connection
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(std::string_view flag, const std::string& address,
                                                              Handlers handlers) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handlers)));
  POSENC_ASSIGN_OR_RETURN(server->sockets_, ListenAt(address, flag));
  for (const ListeningSocket& listening : server->sockets_) {
    LimitUnsent(listening.socket.get());
    MHD_Daemon* daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, /*port=*/0, nullptr, nullptr, &Serve,
                         const_cast<Handlers*>(&server->handlers_), MHD_OPTION_LISTEN_SOCKET, listening.socket.get(),
                         MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(kMostConnections + kMoreWhileClosing),
                         MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostOfAddress, MHD_OPTION_CONNECTION_TIMEOUT,
                         static_cast<unsigned>(kIdleSeconds), MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemory,
                         MHD_OPTION_NOTIFY_CONNECTION, &Note, &server->open_.emplace_back(), MHD_OPTION_END);
    if (daemon == nullptr) return absl::InternalError(std::string(flag) + ": libmicrohttpd cannot start");
    server->daemons_.push_back(daemon);
  }
  return server;
}

HttpServer::~HttpServer() {
  // MHD_stop_daemon would close the socket, whose descriptor is this object's.
  for (MHD_Daemon* daemon : daemons_) MHD_quiesce_daemon(daemon);
  for (MHD_Daemon* daemon : daemons_) MHD_stop_daemon(daemon);
  for (const ListeningSocket& listening : sockets_) RemoveFileOf(listening);
}

}  // namespace posenc::server
