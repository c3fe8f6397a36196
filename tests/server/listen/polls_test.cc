#include "server/listen/polls.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/descriptor.h"
#include "server/listen/socket_state.h"
#include "tests/server/listen/tcp_pair.h"

namespace posenc::server {
namespace {

constexpr int kWait = 5000;  // milliseconds

// Polls as gRPC does.
class PollsTest : public testing::Test {
 protected:
  void Add(TcpPair* pair) {
    epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = pair}};
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pair->connection.get(), &event), 0);
  }
  // The next events, which are of that pair; 0 if there are none.
  uint32_t Poll(const TcpPair* pair, int timeout = 0) {
    epoll_event event = {};
    const int count = epoll_wait(epoll_.get(), &event, 1, timeout);
    if (count != 1) return 0;
    EXPECT_EQ(event.data.ptr, pair);
    return event.events;
  }
  static void Send(const TcpPair& pair, size_t bytes) {
    const std::vector<char> data(bytes);
    ASSERT_EQ(send(pair.host.get(), data.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }

  Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(PollsTest, AHiddenSocketCannotBeReadUntilItIsShown) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  HideFromPolls(pair.connection.get());
  Pause(pair.connection.get());
  Send(pair, 100'000);  // more than a paused socket keeps to itself
  EXPECT_FALSE(Poll(&pair, 50) & EPOLLIN);
  ShowToPolls(pair.connection.get());
  Resume(pair.connection.get());
  EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
}

TEST_F(PollsTest, AHiddenSocketCanBeWritten) {
  TcpPair pair;
  HideFromPolls(pair.connection.get());
  Add(&pair);
  Send(pair, 10);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
}

TEST_F(PollsTest, TheEndOfAHiddenSocketIsNotHidden) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  HideFromPolls(pair.connection.get());
  pair.host = Descriptor();
  EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
}

TEST_F(PollsTest, AnotherSocketWithTheDescriptorOfAHiddenOneIsNotHidden) {
  TcpPair old, pair;
  const int descriptor = old.connection.get();
  HideFromPolls(descriptor);
  ASSERT_EQ(dup2(pair.connection.get(), descriptor), descriptor);  // closes the hidden socket
  std::swap(old.connection, pair.connection);
  Add(&pair);
  Send(pair, 10);
  EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
}

// A thread that gets no processor time is taken for one that does nothing, so some tries may fail.
TEST_F(PollsTest, AHeldSocketCannotBeReadUntilItsThreadShowsIt) {
  bool is_hidden = false;
  for (int n = 0; n < 50 && !is_hidden; ++n) {
    TcpPair pair;
    Add(&pair);
    EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
    Send(pair, 10);
    HoldFromPolls(pair.connection.get());
    std::atomic<bool> polled{false};
    std::thread other([&] {
      ShowHeld();  // of that thread
      is_hidden = !(Poll(&pair, 50) & EPOLLIN);
      polled = true;
    });
    while (!polled) {
    }
    other.join();
    ShowHeld();
    if (is_hidden) {
      EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
    }
  }
  EXPECT_TRUE(is_hidden);
}

TEST_F(PollsTest, AHeldSocketIsShownByOtherThreadsIfItsOwnDoesNotPoll) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  Send(pair, 10);
  std::thread([&] { HoldFromPolls(pair.connection.get()); }).join();
  uint32_t events = 0;
  const auto began = std::chrono::steady_clock::now();
  while ((events & EPOLLIN) == 0 && std::chrono::steady_clock::now() - began < std::chrono::seconds(5)) {
    ShowHeld();
    events = Poll(&pair, -1);  // returns soon
  }
  EXPECT_TRUE(events & EPOLLIN);
}

TEST_F(PollsTest, AHoldIsSeenByAThreadThatWaits) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  std::atomic<bool> waits{false};
  std::chrono::steady_clock::duration waited{};
  std::thread other([&] {
    const auto began = std::chrono::steady_clock::now();
    waits = true;
    Poll(&pair, 4 * kWait);
    waited = std::chrono::steady_clock::now() - began;
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Pause(pair.connection.get());
  Send(pair, 10);
  HoldFromPolls(pair.connection.get());
  other.join();
  EXPECT_LT(waited, std::chrono::milliseconds(2 * kWait)) << "though no event came";
  ShowHeld();
}

TEST_F(PollsTest, AHeldSocketThatIsHiddenTooRemainsHidden) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  HoldFromPolls(pair.connection.get());
  HideFromPolls(pair.connection.get());
  Send(pair, 10);
  ShowHeld();
  EXPECT_FALSE(Poll(&pair, 50) & EPOLLIN);
  ShowToPolls(pair.connection.get());
  Resume(pair.connection.get());
  EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
}

TEST_F(PollsTest, ASocketThatIsPolledLaterIsNotPolledBefore) {
  TcpPair pair;
  Send(pair, 10);
  {
    const PollLater later;
    Add(&pair);
    EXPECT_EQ(Poll(&pair, 50), 0);
  }
  EXPECT_EQ(Poll(&pair, kWait), EPOLLIN | EPOLLOUT);
}

TEST_F(PollsTest, OtherThreadsPollTheirSocketsAtOnce) {
  TcpPair pair;
  const PollLater later;
  std::thread([&] { Add(&pair); }).join();
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
}

TEST_F(PollsTest, AnotherSocketWithTheDescriptorOfOneThatIsPolledLaterIsNotPolled) {
  TcpPair old, pair;
  {
    const PollLater later;
    Add(&old);
    ASSERT_EQ(dup2(pair.connection.get(), old.connection.get()), old.connection.get());  // closes the old socket
  }
  EXPECT_EQ(Poll(&old, 50), 0);
}

TEST_F(PollsTest, TheTimeSincePollsIsThatOfThreadsThatCount) {
  CountPollsOfThisThread();
  Poll(nullptr);
  const auto polled = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::thread([&] { Poll(nullptr); }).join();  // it does not count
  EXPECT_GE(SincePoll(), std::chrono::milliseconds(2));
  EXPECT_LE(SincePoll(), std::chrono::steady_clock::now() - polled + std::chrono::milliseconds(2));
}

TEST_F(PollsTest, AThreadThatDoesNotCountDoesNotKeepThePollFromOthers) {
  std::thread([&] {
    CountPollsOfThisThread();
    Poll(nullptr);
  }).join();
  std::thread([&] { EXPECT_EQ(Poll(nullptr, -1), 0) << "it returns at once"; }).join();
}

TEST_F(PollsTest, WhileAThreadWaitsTheTimeSincePollsIsZero) {
  TcpPair pair;
  Add(&pair);
  EXPECT_EQ(Poll(&pair, kWait), EPOLLOUT);
  std::thread waits([&] {
    CountPollsOfThisThread();
    EXPECT_TRUE(Poll(&pair, kWait) & EPOLLIN);
  });
  while (SincePoll() != std::chrono::steady_clock::duration(0)) std::this_thread::yield();
  Send(pair, 1);
  waits.join();
}

}  // namespace
}  // namespace posenc::server
