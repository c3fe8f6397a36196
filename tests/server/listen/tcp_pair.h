// A TCP connection of this process to itself, for tests.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "gtest/gtest.h"
#include "server/core/descriptor.h"

namespace posenc::server {

// A connection over the loopback interface to a host that receives little before it reads.
struct TcpPair {
  TcpPair() {
    const Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int size = 4096;
    EXPECT_EQ(setsockopt(host.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listening.get(), name, length), 0);
    EXPECT_EQ(listen(listening.get(), 1), 0);
    EXPECT_EQ(getsockname(listening.get(), name, &length), 0);
    EXPECT_EQ(connect(host.get(), name, length), 0);
    connection = Descriptor(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  // Sends until the connection takes no more.
  void Fill() const {
    const std::vector<char> bytes(100'000);
    while (send(connection.get(), bytes.data(), bytes.size(), 0) > 0) {
    }
  }
  void Read(size_t count) const {
    std::vector<char> bytes(count);
    EXPECT_EQ(recv(host.get(), bytes.data(), count, MSG_WAITALL), static_cast<ssize_t>(count));
  }

  Descriptor host{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Descriptor connection;
};

}  // namespace posenc::server
