#include "server/listen/reading_turns.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/listen/read_times.h"
#include "server/listen/socket_state.h"
#include "tests/server/listen/tcp_pair.h"
#include "tests/server/listen/tcp_reads.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;

constexpr size_t kBytes = 32;
constexpr Peer kCrowd = 1, kLonely = 2;
constexpr int kCallsInALook = 125;  // that the server can serve, if each takes 40 microseconds

// A server that reads its connections as gRPC does: one after the other, and of each all that it has sent. A call has
// kBytes. A look is every 5 milliseconds of a clock of the test's.
class ReadingTurnsTest : public testing::Test {
 protected:
  // Adds connections of a peer, which send so many calls at once, and again when these are served.
  void Connect(Peer peer, size_t count, size_t calls) {
    for (size_t n = 0; n < count; ++n) {
      // Each has a listening socket of its own, so two could have the same port, by which their calls are counted.
      auto pair = std::make_unique<TcpPair>();
      while (ports_.contains(PortOf(pair->connection.get()))) pair = std::make_unique<TcpPair>();
      ports_.insert(PortOf(pair->connection.get()));
      pairs_.push_back(std::move(pair));
      calls_.push_back(calls);
      const int descriptor = pairs_.back()->connection.get();
      open_.push_back({descriptor, *InodeOf(descriptor), peer, PortOf(descriptor)});
      Send(pairs_.size() - 1);
    }
  }
  void Send(size_t n) {
    const std::vector<char> bytes(calls_[n] * kBytes);
    ASSERT_EQ(send(pairs_[n]->host.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  bool IsReadable(size_t n) const {
    pollfd state = {open_[n].descriptor, POLLIN, 0};
    return poll(&state, 1, 0) == 1;
  }
  std::set<size_t> Readable(Peer peer) const {
    std::set<size_t> readable;
    for (size_t n = 0; n < open_.size(); ++n) {
      if (open_[n].peer == peer && IsReadable(n)) readable.insert(n);
    }
    return readable;
  }
  // Serves for 5 milliseconds, then looks. Returns what Take() does.
  bool Look() {
    busy_ = budget_ < 0 ? 1 : 0;
    for (budget_ += kCallsInALook; budget_ > 0;) {
      size_t n = last_;
      do {
        n = (n + 1) % open_.size();
      } while (n != last_ && (!IsReadable(n) || unread_.contains(n)));
      if (!IsReadable(n) || unread_.contains(n)) budget_ = 0;
      if (budget_ == 0) break;
      last_ = n;
      Read(n);
      Send(n);
      busy_ = 1;
    }
    const auto since_poll = std::chrono::microseconds(40) * std::max(0, -budget_);
    return turns_.Take(open_, {std::exchange(received_, {}), busy_ * 0.005, since_poll}, now_ += milliseconds(5));
  }
  // Counts what is served in a second, after half a second.
  void ServeForASecond() {
    for (int look = 0; look < 100; ++look) Look();
    served_.clear();
    for (int look = 0; look < 200; ++look) Look();
  }
  void Read(size_t n) {
    char bytes[100 * kBytes];
    const ssize_t size = ReadFrom(open_[n].descriptor, bytes, sizeof(bytes));
    ASSERT_GT(size, 0);
    const auto calls = static_cast<int>(static_cast<size_t>(size) / kBytes);
    budget_ -= calls * cost_;
    const bool is_refused = refused_ && open_[n].peer == refused_;
    if (is_refused) Work(calls * cost_ * std::chrono::microseconds(40));
    EndRead();
    if (is_refused) return;
    received_[open_[n].peer][open_[n].port] += static_cast<size_t>(calls * (is_cost_counted_ ? cost_ : 1));
    served_[open_[n].peer] += calls;
    ++turns_of_[n];
  }

  std::vector<std::unique_ptr<TcpPair>> pairs_;
  std::vector<size_t> calls_;
  std::vector<Connections::Open> open_;
  std::set<uint16_t> ports_;
  std::set<size_t> unread_;  // that the server does not read
  ReadingTurns turns_{1};
  ReadingTurns::Clock::time_point now_ = ReadingTurns::Clock::now();
  ReceivedCalls::OfPeers received_;
  std::map<Peer, int> served_;
  std::map<size_t, int> turns_of_;
  size_t last_ = 0;
  int budget_ = 0;
  int cost_ = 1;  // a call takes as long as so many
  Peer refused_;  // gRPC itself refuses the calls of this peer
  bool is_cost_counted_ = true;
  double busy_ = 0;
};

TEST_F(ReadingTurnsTest, ManyConnectionsWithACallEachAreNotPaused) {
  Connect(kCrowd, 100, 1);
  for (int look = 0; look < 50; ++look) EXPECT_FALSE(Look());
}

TEST_F(ReadingTurnsTest, OfManyConnectionsWithManyCallsEachHasItsTurn) {
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 10; ++look) Look();
  EXPECT_EQ(turns_.paused(), 50) << "1024 calls may be read at a time";
  served_.clear();
  turns_of_.clear();
  for (int look = 0; look < 200; ++look) {
    EXPECT_LE(Readable(kCrowd).size(), 10);
    Look();
  }
  EXPECT_NEAR(served_[kCrowd], 200 * kCallsInALook, kCallsInALook);
  EXPECT_EQ(turns_of_.size(), 60);
  for (const auto& [n, turns] : turns_of_) EXPECT_LE(turns, 6) << n;
  EXPECT_EQ(turns_.level(), std::nullopt) << "no other peer is there";
}

TEST_F(ReadingTurnsTest, ACallOfAnotherPeerWaitsForFewOthers) {
  Connect(kCrowd, 60, 95);
  Connect(kLonely, 1, 1);
  ServeForASecond();
  EXPECT_GE(served_[kLonely], 50) << "it waits for less than four connections of the other peer";
  EXPECT_GE(served_[kCrowd], 200 * kCallsInALook * 3 / 4) << "the server works most of the time";
  EXPECT_EQ(turns_.busiest(), kCrowd);
}

TEST_F(ReadingTurnsTest, OfConnectionsWithCallsThatTakeLongFewerAreRead) {
  cost_ = 4;
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 600; ++look) Look();
  EXPECT_NEAR(turns_.paused(), 58, 1) << "1024 calls may be read at a time";
}

TEST_F(ReadingTurnsTest, WhileTheThreadsAreBehindFewerAreRead) {
  cost_ = 4;
  is_cost_counted_ = false;
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 100; ++look) Look();
  for (int look = 0; look < 100; ++look) {
    Look();
    EXPECT_LE(Readable(kCrowd).size(), 2);
  }
}

TEST_F(ReadingTurnsTest, WhileTheThreadsAreBehindNoConnectionOfTheBusiestPeerHasATurn) {
  Connect(kCrowd, 30, 50);
  Connect(kLonely, 2, 50);
  const auto take = [&](milliseconds since_poll) {
    turns_.Take(open_, {{{kCrowd, {{open_[0].port, 500}}}, {kLonely, {{open_[30].port, 10}}}}, 0.005, since_poll},
                now_ += milliseconds(5));
  };
  take(milliseconds(1));
  EXPECT_EQ(Readable(kCrowd).size(), 10) << "1024 calls, of which each has 32 bytes or twice as many";
  take(milliseconds(11));
  EXPECT_EQ(Readable(kCrowd).size(), 0);
  EXPECT_EQ(Readable(kLonely).size(), 2);
  take(milliseconds(0));
  EXPECT_GE(Readable(kCrowd).size(), 1);
}

TEST_F(ReadingTurnsTest, CallsThatAreNotCountedCountByTheirTime) {
  refused_ = kCrowd;
  cost_ = 2;
  Connect(kCrowd, 64, 100);
  Connect(kLonely, 4, 1);
  std::thread([this] {
    TimeReadsOfThisThread();
    for (int look = 0; look < 40; ++look) Look();
  }).join();
  EXPECT_EQ(turns_.busiest(), kCrowd);
  EXPECT_LE(Readable(kCrowd).size(), 2);
  EXPECT_EQ(Readable(kLonely).size(), 4);
}

TEST_F(ReadingTurnsTest, NobodyWaitsForThoseThatCannotBePaused) {
  Connect(kCrowd, 30, 50);
  Connect(std::nullopt, 1, 50);
  for (int look = 0; look < 10; ++look) {
    turns_.Take(open_, {{{std::nullopt, {{0, 500}}}}, 0.005, milliseconds(11)}, now_ += milliseconds(5));
  }
  EXPECT_GE(Readable(kCrowd).size(), 5);
}

TEST_F(ReadingTurnsTest, AConnectionKeepsItsPlaceUntilAWholeMessageWasRead) {
  Connect(kCrowd, 30, 50);
  const auto take = [&](ReceivedCalls::OfPeers calls) {
    turns_.Take(open_, {std::move(calls), 0.005, milliseconds(1)}, now_ += milliseconds(5));
  };
  take({{kCrowd, {{open_[0].port, 500}}}});
  size_t first = 0;
  while (!IsReadable(first)) ++first;
  char bytes[100];
  for (int look = 0; look < 20; ++look) {
    ASSERT_EQ(recv(open_[first].descriptor, bytes, 10, 0), 10);
    take({});
    EXPECT_TRUE(IsReadable(first));
  }
}

TEST_F(ReadingTurnsTest, AConnectionThatSendsLittleDoesNotWaitForTheOthersOfItsPeer) {
  Connect(kCrowd, 60, 95);
  Connect(kCrowd, 1, 1);
  for (int look = 0; look < 600; ++look) Look();
  int readable = 0;
  for (int look = 0; look < 200; ++look) {
    Look();
    readable += IsReadable(60);
  }
  EXPECT_EQ(readable, 200);
}

TEST_F(ReadingTurnsTest, AConnectionThatSendsLittleComesSoonerAlsoWhileAnotherPeerIsThere) {
  Connect(kCrowd, 100, 95);
  Connect(kCrowd, 1, 1);
  Connect(kLonely, 1, 1);
  for (int look = 0; look < 600; ++look) Look();
  turns_of_.clear();
  for (int look = 0; look < 400; ++look) Look();
  int most = 0;
  for (const auto& [n, turns] : turns_of_) most = n < 100 ? std::max(most, turns) : most;
  EXPECT_GE(turns_of_[100], 5 * most) << "of those that send more";
}

TEST_F(ReadingTurnsTest, AConnectionThatSendsLittleIsKnownBeforeOthersCome) {
  Connect(kCrowd, 1, 1);
  for (int look = 0; look < 20; ++look) {
    Read(0);
    Send(0);
    received_.clear();
    turns_.Take(open_, {{{kCrowd, {{open_[0].port, 5}}}}, 0.001}, now_ += milliseconds(5));
  }
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 100; ++look) {
    Look();
    EXPECT_TRUE(IsReadable(0));
  }
}

TEST_F(ReadingTurnsTest, ANewConnectionOfALimitedPeerWaitsForItsTurn) {
  EXPECT_FALSE(turns_.IsLimited(kCrowd, now_));
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 10; ++look) Look();
  EXPECT_TRUE(turns_.IsLimited(kCrowd, now_));
  EXPECT_FALSE(turns_.IsLimited(kLonely, now_));
  EXPECT_FALSE(turns_.IsLimited(std::nullopt, now_));
  Connect(kCrowd, 1, 95);
  turns_.Add(open_[60].descriptor);
  EXPECT_FALSE(IsReadable(60));
  for (int look = 0; look < 200; ++look) Look();
  EXPECT_GE(turns_of_[60], 2);
}

TEST_F(ReadingTurnsTest, FewConnectionsWithManyCallsDoNotStarveManyWithOne) {
  Connect(kCrowd, 4, 100);
  Connect(kLonely, 64, 1);
  ServeForASecond();
  EXPECT_GE(served_[kLonely], 200 * kCallsInALook * 64 / 464) << "as much as without turns, or more";
  EXPECT_GE(served_[kLonely] + served_[kCrowd], 200 * kCallsInALook * 8 / 10);
}

TEST_F(ReadingTurnsTest, AConnectionThatTheServerDoesNotReadHoldsUpNobodyForLong) {
  Connect(kCrowd, 100, 1);
  Connect(kLonely, 1, 1);
  unread_.insert(100);
  for (int look = 0; look < 250; ++look) Look();
  served_.clear();
  for (int look = 0; look < 100; ++look) EXPECT_FALSE(Look());
  EXPECT_EQ(served_[kCrowd], 100 * kCallsInALook);
}

TEST_F(ReadingTurnsTest, APeerHasHalfOfAnEqualShareAtLeast) {
  Connect(kCrowd, 1, 1);  // as if its messages were so large that they escape the pause
  Connect(kLonely, 1, 1);
  for (int look = 0; look < 80; ++look) {
    turns_.Take(open_, {{{kCrowd, {{1, 80}}}, {kLonely, {{2, 40}}}}, 0.005}, now_ += milliseconds(5));
  }
  ASSERT_TRUE(turns_.level());
  EXPECT_GE(*turns_.level(), 120 * 200 / 4 - 1) << "200 looks a second, two peers";
}

TEST_F(ReadingTurnsTest, NobodyIsPausedWhileTheThreadsAreIdle) {
  Connect(kCrowd, 2, 1);
  Connect(kLonely, 1, 1);
  unread_ = {0, 1, 2};
  for (int look = 0; look < 50; ++look) EXPECT_FALSE(Look());
}

TEST_F(ReadingTurnsTest, AConnectionThatEndsIsReadAtOnce) {
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 10; ++look) Look();
  size_t paused = 0;
  while (IsReadable(paused)) ++paused;
  pairs_[paused]->host = Descriptor();
  EXPECT_TRUE(IsReadable(paused));
}

TEST_F(ReadingTurnsTest, WhatAPausedConnectionSentBeforeItEndedIsNotRead) {
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 10; ++look) Look();
  size_t paused = 0;
  while (IsReadable(paused)) ++paused;
  unread_.insert(paused);
  pairs_[paused]->host = Descriptor();
  Look();
  char byte = 0;
  EXPECT_LE(recv(open_[paused].descriptor, &byte, 1, 0), 0);
}

TEST_F(ReadingTurnsTest, AllAreResumedAtTheEnd) {
  Connect(kCrowd, 60, 95);
  for (int look = 0; look < 10; ++look) Look();
  EXPECT_LE(Readable(kCrowd).size(), 10);
  turns_.ResumeAll();
  EXPECT_EQ(Readable(kCrowd).size(), 60);
}

TEST_F(ReadingTurnsTest, ClientsOfUnixSocketsAreNeverPaused) {
  Connect(kCrowd, 60, 95);
  Connect(std::nullopt, 60, 100);  // TCP, of which only the missing peer counts
  for (int look = 0; look < 100; ++look) Look();
  EXPECT_EQ(Readable(std::nullopt).size(), 60);
  EXPECT_GE(turns_.paused(), 50);
}

TEST(ReceivedCalls, CountsCallsOfConnections) {
  ReceivedCalls received;
  for (const char* connection : {"ipv4:127.0.0.2:1", "ipv4:127.0.0.2:1", "ipv4:127.0.0.2:2", "ipv6:%5B::1%5D:1",
                                 "ipv4:127.0.0.2:1", "unix:", "unix:/x", "unix:"}) {
    received.Add(connection, 1);
  }
  const ReceivedCalls::OfPeers counts = received.Take();
  ASSERT_EQ(counts.size(), 3);
  const auto& of_ports = counts.at(PeerOf("ipv4:127.0.0.2:9"));
  ASSERT_EQ(of_ports.size(), 2);
  EXPECT_EQ(of_ports.at(1), 3);
  EXPECT_EQ(of_ports.at(2), 1);
  EXPECT_EQ(counts.at(PeerOf("ipv6:[::1]:9")).at(1), 1);
  EXPECT_EQ(counts.at(std::nullopt).at(0), 3);
  EXPECT_TRUE(received.Take().empty());
  EXPECT_EQ(received.Add("unix:", 33), 41) << "since the start";
  EXPECT_EQ(received.Take().at(std::nullopt).at(0), 33);
}

}  // namespace
}  // namespace posenc::server
