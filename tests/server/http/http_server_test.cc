// The HTTP server without gRPC, so that ThreadSanitizer sees it: requests that other threads answer, bodies, clients
// that go away.
#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/work_pool.h"
#include "server/listen/listener.h"

namespace posenc::server::http_server_test {
namespace {

constexpr int kClients = 8, kRequests = 40;

// A server that answers with the request's body, from a thread of a pool.
class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpServer::Options options = {.threads = 2};
    options.shared = {.handler = [this](const HttpRequest& request) { return Handle(request); },
                      .limits = {.max_header_bytes = 4096,
                                 .max_body_bytes = 1 << 20,
                                 .handshake_timeout = std::chrono::seconds(60),
                                 .receive_timeout = std::chrono::seconds(60),
                                 .send_timeout = std::chrono::seconds(60),
                                 .max_age = std::chrono::hours(1)},
                      .body_bytes = FairLimit::Create(64 << 20),
                      .buffers = std::make_shared<BufferPool>(16 << 20),
                      .is_draining = [] { return false; }};
    server_ = std::make_unique<HttpServer>(std::move(options));
    auto listener = Listener::Listen({.http_addresses = {"127.0.0.1:0"},
                                      .max_connections = 1000,
                                      .max_connections_per_peer = 1000,
                                      .send_timeout = std::chrono::seconds(60),
                                      .handshake_timeout = std::chrono::seconds(60)});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start([this](Descriptor connection, const ListeningSocket&, Listener::Kind kind) {
      server_->Serve(std::move(connection), kind);
    });
  }

  std::variant<HttpAnswer, HttpContinuation> Handle(const HttpRequest& request) {
    if (request.target == "/now") return HttpAnswer{.body = "now"};
    return HttpContinuation([this](const std::shared_ptr<HttpExchange>& exchange) {
      pool_.Submit([this, exchange] {
        const auto bytes = exchange->body().bytes;
        HttpAnswer answer;
        answer.body.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (exchange->is_gone()) ++gone_;
        exchange->Answer(std::move(answer), [this] { ++sent_; });
      });
      ++begun_;
    });
  }

  int Connect() const {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(listener_->http_port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }
  static void Send(int client, const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t bytes = send(client, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (bytes <= 0) return;
      sent += static_cast<size_t>(bytes);
    }
  }
  static std::string Receive(int client, const std::string& end) {
    std::string received;
    char buffer[4096];
    while (!received.ends_with(end)) {
      const ssize_t bytes = recv(client, buffer, sizeof(buffer), 0);
      if (bytes <= 0) break;
      received.append(buffer, static_cast<size_t>(bytes));
    }
    return received;
  }
  static std::string Post(const std::string& body) {
    return "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  std::atomic<int> begun_{0}, sent_{0}, gone_{0};
  WorkPool pool_{2};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(HttpServerTest, AnswersManyClientsAtOnce) {
  std::vector<std::thread> clients;
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([this, number] {
      const int client = Connect();
      for (int n = 0; n < kRequests; ++n) {
        const std::string body = std::string(static_cast<size_t>(n) * 1000, 'x') + std::to_string(number) + "end";
        Send(client, n % 4 == 3 ? "GET /now HTTP/1.1\r\nHost: a\r\n\r\n" : Post(body));
        const std::string answer = Receive(client, n % 4 == 3 ? "now" : "end");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 100);
        EXPECT_TRUE(n % 4 == 3 || answer.ends_with("\r\n\r\n" + body));
      }
      close(client);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(begun_, kClients * kRequests * 3 / 4);
}

TEST_F(HttpServerTest, ClientsGoAtAnyTime) {
  std::vector<std::thread> clients;
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([this, number] {
      const std::string request = Post(std::string(20'000, 'x'));
      for (int n = 0; n < kRequests; ++n) {
        const int client = Connect();
        Send(client, request.substr(0, request.size() * static_cast<size_t>(1 + (number + n) % 4) / 4));
        if (n % 2 == 0) shutdown(client, SHUT_WR);
        close(client);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  listener_.reset();
  server_.reset();  // waits for all requests
  EXPECT_EQ(begun_, sent_) << "each request that began has ended";
}

TEST_F(HttpServerTest, EndsWhileClientsCall) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([&] {
      const int client = Connect();
      while (!stop) {
        Send(client, Post("aend"));
        if (Receive(client, "end").empty()) break;
      }
      close(client);
    });
  }
  while (begun_ < 50) std::this_thread::yield();
  listener_.reset();
  server_.reset();
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(begun_, sent_);
}

}  // namespace
}  // namespace posenc::server::http_server_test
