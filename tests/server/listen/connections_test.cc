#include "server/listen/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/descriptor.h"
#include "server/listen/socket_state.h"
#include "tests/server/listen/tcp_pair.h"

namespace posenc::server {
namespace {

using Verdict = Connections::Verdict;

Descriptor Socket() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

Peer PeerAt(const char* text) {
  sockaddr_storage address = {};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  if (inet_pton(AF_INET6, text, &ipv6.sin6_addr) == 1) {
    address.ss_family = AF_INET6;
  } else {
    EXPECT_EQ(inet_pton(AF_INET, text, &ipv4.sin_addr), 1) << text;
    address.ss_family = AF_INET;
  }
  return PeerOf(address);
}

// The number of open connections, by a new check: the last one may be too recent.
size_t OpenIn(Connections* connections) {
  usleep(110'000);
  return connections->CountOpen();
}

TEST(PeerOf, ReadsNamesOfGrpc) {
  EXPECT_EQ(PeerOf("ipv4:192.0.2.1:50051"), PeerAt("192.0.2.1"));
  EXPECT_EQ(PeerOf("ipv6:%5B2001:db8::1%5D:50051"), PeerAt("2001:db8::1"));
  EXPECT_EQ(PeerOf("ipv6:[2001:db8::1]:50051"), PeerAt("2001:db8::1"));
  EXPECT_EQ(PeerOf("ipv6:%5Bfe80::1%25eth0%5D:50051"), PeerAt("fe80::1"));
  for (const char* name : {"unix:", "unix:/run/x:1", "unix:192.0.2.1:9", "", ":", "ipv4:", "ipv4:x:1"})
    EXPECT_EQ(PeerOf(name), std::nullopt);
}

TEST(PeerOf, JoinsTheAddressesOfAHost) {
  EXPECT_EQ(PeerAt("2001:db8:1:2::1"), PeerAt("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(PeerAt("2001:db8:1:2::1"), PeerAt("2001:db8:1:3::1"));
  EXPECT_EQ(PeerAt("192.0.2.1"), PeerAt("::ffff:192.0.2.1"));
  EXPECT_NE(PeerAt("192.0.2.1"), PeerAt("192.0.2.2"));
  EXPECT_NE(PeerAt("192.0.2.1"), PeerAt("::1"));
  sockaddr_storage local = {};
  local.ss_family = AF_UNIX;
  EXPECT_EQ(PeerOf(local), std::nullopt);
}

TEST(Connections, AreLimited) {
  Connections connections(3, 2);
  std::vector<Descriptor> sockets;
  const auto add = [&](Peer peer) {
    sockets.push_back(Socket());
    return connections.Add(sockets.back().get(), peer);
  };
  EXPECT_EQ(add(1), Verdict::kAdmitted);
  EXPECT_EQ(add(1), Verdict::kAdmitted);
  EXPECT_EQ(add(1), Verdict::kTooManyOfPeer);
  EXPECT_EQ(add(2), Verdict::kAdmitted);
  EXPECT_EQ(add(3), Verdict::kTooMany);
  EXPECT_EQ(connections.CountOpen(), 3u);
}

TEST(Connections, OfEachKindHaveTheWholeLimit) {
  Connections connections(3, 1);
  std::vector<Descriptor> sockets;
  const auto add = [&](Peer peer, bool trusted) {
    sockets.push_back(Socket());
    return connections.Add(sockets.back().get(), peer, trusted);
  };
  for (uint64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(add(n, false), Verdict::kAdmitted);
    EXPECT_EQ(add(std::nullopt, false), Verdict::kAdmitted);
    EXPECT_EQ(add(std::nullopt, true), Verdict::kAdmitted);
  }
  EXPECT_EQ(add(3, false), Verdict::kTooMany);
  EXPECT_EQ(add(std::nullopt, false), Verdict::kTooMany);
  EXPECT_EQ(add(std::nullopt, true), Verdict::kTooMany);
  // One that is closed makes room for its own kind only.
  sockets[2] = Descriptor();
  EXPECT_EQ(OpenIn(&connections), 8u);
  EXPECT_EQ(add(std::nullopt, false), Verdict::kTooMany);
  EXPECT_EQ(add(std::nullopt, true), Verdict::kAdmitted);
}

TEST(Connections, ForgetClosedOnes) {
  Connections connections(2, 1);
  Descriptor a = Socket(), b = Socket();
  const int number = a.get();
  EXPECT_EQ(connections.Add(a.get(), 1), Verdict::kAdmitted);
  EXPECT_EQ(connections.Add(b.get(), 2), Verdict::kAdmitted);

  // The descriptor of a closed connection now refers to another socket, which is no connection.
  a = Descriptor();
  a = Socket();
  ASSERT_EQ(a.get(), number);
  EXPECT_EQ(OpenIn(&connections), 1u);
  EXPECT_EQ(connections.Add(a.get(), 1), Verdict::kAdmitted);

  // A new connection with the descriptor of a closed one takes its place, before anyone looked.
  a = Descriptor();
  a = Socket();
  ASSERT_EQ(a.get(), number);
  EXPECT_EQ(connections.Add(a.get(), 1), Verdict::kAdmitted);
  EXPECT_EQ(OpenIn(&connections), 2u);
  a = Descriptor();
  b = Descriptor();
  EXPECT_EQ(OpenIn(&connections), 0u);
}

TEST(Connections, AreCheckedAtTheLimit) {
  Connections connections(2, 2);
  for (int n = 0; n < 100; ++n) {
    // Each is closed by the end of its turn; the descriptor in between keeps the numbers from being reused.
    const Descriptor other = Socket();
    const Descriptor one = Socket();
    const auto verdict = connections.Add(one.get(), 1);
    if (verdict == Verdict::kAdmitted) continue;
    // A check may be skipped shortly after another one; it is repeated soon.
    while (connections.Add(one.get(), 1) != Verdict::kAdmitted) usleep(1);
  }
}

// True if the host finds the connection's end behind what was sent to it.
bool IsAtEnd(const Descriptor& host) {
  char byte;
  return recv(host.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(Connections, AreClosedWhenTheyAreIdleAndAllIsAcknowledged) {
  Connections connections(10, 10);
  const TcpPair idle, busy, unread;
  const Peer peer = PeerAt("127.0.0.1");
  for (const TcpPair* pair : {&idle, &busy, &unread}) {
    ASSERT_EQ(connections.Add(pair->connection.get(), peer), Verdict::kAdmitted);
  }
  EXPECT_TRUE(connections.AreQuiet());
  unread.Fill();
  EXPECT_FALSE(connections.AreQuiet()) << "the host reads nothing, and its buffer is full";
  EXPECT_EQ(connections.CloseIdle({{peer, PortOf(busy.connection.get())}}), 3u) << "none is closed by its owner yet";
  EXPECT_TRUE(IsAtEnd(idle.host));
  EXPECT_FALSE(IsAtEnd(busy.host));
  EXPECT_GT(UnsentTo(unread.connection.get()), 0) << "what was sent is not given up";
  EXPECT_EQ(connections.CloseIdle({}), 3u);
  EXPECT_TRUE(IsAtEnd(busy.host));
}

TEST(Connections, AreNotQuietWhileARequestWaitsInTheKernel) {
  Connections connections(10, 10);
  const TcpPair pair;
  ASSERT_EQ(connections.Add(pair.connection.get(), PeerAt("127.0.0.1")), Verdict::kAdmitted);
  ASSERT_EQ(send(pair.host.get(), "request", 7, 0), 7);
  while (UnreadOf(pair.connection.get()) == 0) usleep(100);
  EXPECT_FALSE(connections.AreQuiet());
}

TEST(Connections, ThatStillSendAreResetUnlessTheyHaveNotTakenAll) {
  Connections connections(10, 10);
  const TcpPair sends, both, idle;
  for (const TcpPair* pair : {&sends, &both, &idle})
    ASSERT_EQ(connections.Add(pair->connection.get(), PeerAt("127.0.0.1")), Verdict::kAdmitted);
  ASSERT_EQ(send(sends.host.get(), "x", 1, 0), 1);
  while (UnreadOf(sends.connection.get()) == 0) usleep(1000);
  both.Fill();
  ASSERT_EQ(send(both.host.get(), "x", 1, 0), 1);
  while (UnreadOf(both.connection.get()) == 0) usleep(1000);
  EXPECT_EQ(connections.CutBusy(), 2);
  both.Read(100'000);  // not reset
  char byte = 0;
  EXPECT_EQ(recv(sends.host.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(send(idle.connection.get(), "x", 1, MSG_NOSIGNAL), 1);
}

TEST(Connections, OfUnixSocketsNeedNoAcknowledgement) {
  Connections connections(10, 10);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor connection(pair[0]), host(pair[1]);
  ASSERT_EQ(connections.Add(connection.get(), std::nullopt), Verdict::kAdmitted);
  ASSERT_EQ(send(connection.get(), "x", 1, 0), 1);
  EXPECT_TRUE(connections.AreQuiet());
  connections.CloseIdle({});
  char byte = 0;
  EXPECT_EQ(recv(host.get(), &byte, 1, 0), 1) << "what was sent can still be read";
  EXPECT_TRUE(IsAtEnd(host));
}

}  // namespace
}  // namespace posenc::server
