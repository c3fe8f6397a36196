// A client of a name whose servers are replaced, as a rolling update in a cluster does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "posenc/client/client.h"
#include "server/core/config.h"
#include "server/grpc/server.h"

namespace posenc::name_changes_test {
namespace {

// A DNS server on loopback that knows one IPv4 address, which it gives for every name.
class Dns {
 public:
  explicit Dns(const std::string& address) : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
    Answer(address);
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&here), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    port_ = ntohs(here.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Dns() {
    shutdown(socket_, SHUT_RDWR);  // ends recvfrom
    thread_.join();
    close(socket_);
  }

  int port() const { return port_; }
  void Answer(const std::string& address) {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(inet_pton(AF_INET, address.c_str(), &address_), 1);
  }

 private:
  void Run() {
    for (;;) {
      char message[512];
      sockaddr_in from = {};
      socklen_t size = sizeof(from);
      // Room for the answer's record remains.
      const ssize_t received =
          recvfrom(socket_, message, sizeof(message) - 16, 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (received <= 0) return;
      constexpr size_t kHeader = 12;
      const void* zero = memchr(message + kHeader, 0, static_cast<size_t>(received) - kHeader);
      if (zero == nullptr) continue;
      // The question: a name that ends with a zero byte, a type, a class. What follows (EDNS) is left out.
      size_t end = static_cast<size_t>(static_cast<const char*>(zero) - message) + 5;
      const bool ipv4 = message[end - 3] == 1;  // type A; others get no record
      message[2] = static_cast<char>(0x84);     // an authoritative answer
      message[3] = 0;
      memset(message + 6, 0, 6);  // numbers of records
      if (ipv4) {
        message[7] = 1;
        // The question's name, type A, class IN, time to live 0, four bytes.
        constexpr unsigned char kRecord[] = {0xc0, kHeader, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4};
        memcpy(message + end, kRecord, sizeof(kRecord));
        const std::lock_guard lock(mutex_);
        memcpy(message + end + sizeof(kRecord), &address_, 4);
        end += sizeof(kRecord) + 4;
      }
      sendto(socket_, message, end, 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }

  const int socket_;
  int port_ = 0;
  std::mutex mutex_;
  in_addr address_ = {};
  std::thread thread_;
};

std::unique_ptr<server::Server> Start(const std::string& address) {
  server::Config config;
  config.listen = {address};
  config.threads = 1;
  config.log_level = "error";
  EXPECT_EQ(server::Complete({1, 0}, &config), "");
  auto started = server::Server::Start(config);
  EXPECT_TRUE(started.ok()) << started.status();
  return *std::move(started);
}

TEST(NameChanges, TheClientFindsTheServersThatReplaceThoseItKnows) {
  std::unique_ptr<server::Server> first = Start("127.0.0.1:0");
  // Connections of other tests have most ports of 127.0.0.2.
  const std::unique_ptr<server::Server> second = Start(absl::StrCat("127.77.0.2:", first->port()));
  Dns dns("127.0.0.1");
  // All attempts take less than the 30 seconds between gRPC's own resolutions.
  Client client({.address = absl::StrCat("dns://127.0.0.1:", dns.port(), "/servers.test:", first->port()),
                 .several_servers = true,
                 .timeout = std::chrono::seconds(25),
                 .retry = {.max_attempts = 100, .max_backoff = std::chrono::milliseconds(200)}});
  const auto before = client.GetServerInfo();
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(first->counters().started, 1);

  dns.Answer("127.77.0.2");
  EXPECT_TRUE(first->Drain());
  first.reset();
  const auto after = client.GetServerInfo();
  EXPECT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(second->counters().started, 1);
}

}  // namespace
}  // namespace posenc::name_changes_test
