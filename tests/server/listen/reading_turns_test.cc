#include "server/listen/reading_turns.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "server/listen/socket_state.h"
#include "tests/server/listen/tcp_pair.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;

constexpr Peer kCrowd = 1, kLonely = 2;

// Connections of two peers, which are looked at every 5 milliseconds of a clock of their own.
class ReadingTurnsTest : public testing::Test {
 protected:
  void Connect(Peer peer, size_t count) {
    for (size_t n = 0; n < count; ++n) {
      pairs_.push_back(std::make_unique<TcpPair>());
      const int descriptor = pairs_.back()->connection.get();
      open_.push_back({descriptor, *InodeOf(descriptor), peer});
    }
  }
  void Send(size_t n) { ASSERT_EQ(send(pairs_[n]->host.get(), "x", 1, 0), 1); }
  void SendAll() {
    for (size_t n = 0; n < pairs_.size(); ++n) Send(n);
  }
  void Read(size_t n) {
    char byte = 0;
    while (recv(open_[n].descriptor, &byte, 1, 0) > 0) {
    }
  }
  bool Take() { return turns_.Take(open_, now_ += milliseconds(5)); }
  // Numbers of the connections of a peer that a server would read.
  std::set<size_t> Readable(Peer peer) const {
    std::set<size_t> readable;
    for (size_t n = 0; n < open_.size(); ++n) {
      pollfd state = {open_[n].descriptor, POLLIN, 0};
      if (open_[n].peer == peer && poll(&state, 1, 0) == 1) readable.insert(n);
    }
    return readable;
  }

  std::vector<std::unique_ptr<TcpPair>> pairs_;
  std::vector<Connections::Open> open_;
  ReadingTurns turns_;
  ReadingTurns::Clock::time_point now_ = ReadingTurns::Clock::now();
};

TEST_F(ReadingTurnsTest, APeerAloneIsReadAsFastAsTheServerCan) {
  Connect(kCrowd, 100);
  for (int look = 0; look < 20; ++look) {
    SendAll();
    Take();
    EXPECT_FALSE(turns_.starved());
    for (const size_t n : Readable(kCrowd)) Read(n);
  }
  SendAll();
  EXPECT_FALSE(Take());
  EXPECT_EQ(Readable(kCrowd).size(), 100);
  // Now the server does not keep up.
  for (int look = 0; look < 20; ++look) Take();
  EXPECT_LE(Readable(kCrowd).size(), 16);
  EXPECT_FALSE(turns_.starved());
}

TEST_F(ReadingTurnsTest, FewConnectionsAreNotPaused) {
  Connect(kCrowd, 16);
  SendAll();
  for (int look = 0; look < 20; ++look) EXPECT_FALSE(Take());
}

TEST_F(ReadingTurnsTest, WhileAnotherPeerIsStarvedFewAreReadAtATimeAndEachHasItsTurn) {
  Connect(kCrowd, 40);
  Connect(kLonely, 1);
  SendAll();
  for (int look = 0; look < 10; ++look) EXPECT_TRUE(Take());
  EXPECT_TRUE(turns_.starved());
  EXPECT_EQ(turns_.busiest(), kCrowd);
  EXPECT_EQ(turns_.paused(), 39);
  std::set<size_t> had_turn;
  for (int look = 0; look < 40; ++look) {
    const std::set<size_t> readable = Readable(kCrowd);
    EXPECT_EQ(readable.size(), 1);
    had_turn.insert(readable.begin(), readable.end());
    EXPECT_EQ(Readable(kLonely).size(), 1);
    Take();
  }
  EXPECT_EQ(had_turn.size(), 40);
}

TEST_F(ReadingTurnsTest, MoreAreReadAtATimeWhenNobodyIsStarved) {
  Connect(kCrowd, 100);
  Connect(kLonely, 1);
  SendAll();
  for (int look = 0; look < 10; ++look) Take();
  ASSERT_EQ(Readable(kCrowd).size(), 1);
  size_t most = 0;
  for (int look = 0; look < 30; ++look) {
    for (const size_t n : Readable(kLonely)) Read(n);
    const std::set<size_t> readable = Readable(kCrowd);
    most = std::max(most, readable.size());
    for (const size_t n : readable) {
      Read(n);
      Send(n);
    }
    Take();
  }
  EXPECT_EQ(most, 100);
}

TEST_F(ReadingTurnsTest, NotMoreWhileThoseThatMayBeReadWait) {
  Connect(kCrowd, 100);
  Connect(kLonely, 1);
  SendAll();
  for (int look = 0; look < 10; ++look) Take();
  Read(100);  // the server has the other peer's call now, and is busy
  for (int look = 0; look < 30; ++look) {
    Take();
    EXPECT_EQ(Readable(kCrowd).size(), 1);
  }
}

TEST_F(ReadingTurnsTest, AConnectionThatIsReadSlowlyIsNotStarved) {
  Connect(kCrowd, 40);
  Connect(kLonely, 1);
  for (int byte = 0; byte < 20; ++byte) Send(40);
  for (int look = 0; look < 15; ++look) {
    for (size_t n = 0; n < 40; ++n) Send(n);
    Take();
    for (const size_t n : Readable(kCrowd)) Read(n);
    char byte = 0;
    ASSERT_EQ(recv(open_[40].descriptor, &byte, 1, 0), 1);
  }
  EXPECT_FALSE(Take());
}

TEST_F(ReadingTurnsTest, ThoseThatAreReadAndThoseThatEndAreNotHeldUp) {
  Connect(kCrowd, 40);
  Connect(kLonely, 1);
  SendAll();
  for (int look = 0; look < 10; ++look) Take();
  const std::set<size_t> readable = Readable(kCrowd);
  const size_t ended = readable.contains(7) ? 8 : 7;
  pairs_[ended]->host = Descriptor();
  EXPECT_TRUE(Readable(kCrowd).contains(ended));
  for (size_t n = 0; n < open_.size(); ++n) Read(n);
  EXPECT_FALSE(Take());
  for (const size_t n : {0, 1, 2}) Send(n);
  EXPECT_EQ(Readable(kCrowd).size(), 4);
}

TEST_F(ReadingTurnsTest, AllAreResumedAtTheEnd) {
  Connect(kCrowd, 40);
  Connect(kLonely, 1);
  SendAll();
  for (int look = 0; look < 10; ++look) Take();
  turns_.ResumeAll();
  EXPECT_EQ(Readable(kCrowd).size(), 40);
}

TEST_F(ReadingTurnsTest, ClientsOfUnixSocketsAreNeverPausedButCount) {
  Connect(kCrowd, 40);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor host(pair[0]), connection(pair[1]);
  open_.push_back({connection.get(), *InodeOf(connection.get()), std::nullopt});
  ASSERT_EQ(send(host.get(), "x", 1, 0), 1);
  for (size_t n = 0; n < 40; ++n) Send(n);
  for (int look = 0; look < 10; ++look) Take();
  EXPECT_EQ(Readable(kCrowd).size(), 1);
  EXPECT_EQ(Readable(std::nullopt).size(), 1);
}

}  // namespace
}  // namespace posenc::server
