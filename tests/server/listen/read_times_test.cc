#include "server/listen/read_times.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/descriptor.h"
#include "server/listen/socket_state.h"
#include "tests/server/listen/tcp_pair.h"
#include "tests/server/listen/tcp_reads.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;

ssize_t ReadByte(int descriptor) {
  char byte = 0;
  return ReadFrom(descriptor, &byte, 1);
}

void Read(const TcpPair& pair) {
  EXPECT_EQ(send(pair.host.get(), "x", 1, 0), 1);
  EXPECT_EQ(ReadByte(pair.connection.get()), 1);
}

// Each test has a thread of its own, because a thread is timed until it ends.
template <typename Function>
void InTimedThread(const Function& function) {
  std::thread([&] {
    TimeReadsOfThisThread();
    function();
  }).join();
}

TEST(ReadTimes, AreThoseOfWhatFollowsUntilAnotherSocketIsReadOrTheThreadTurnsToOtherWork) {
  const TcpPair one, other;
  BeginReads(one.connection.get());
  BeginReads(other.connection.get());
  InTimedThread([&] {
    Read(one);
    Work(milliseconds(20));
    Read(other);
    Read(other);
    Work(milliseconds(10));
    EndRead();
    Work(milliseconds(100));
    EndRead();
  });
  const auto of_one = TakeReadTime(one.connection.get()), of_other = TakeReadTime(other.connection.get());
  EXPECT_GE(of_one, milliseconds(15));
  EXPECT_LT(of_one, milliseconds(60));
  EXPECT_GE(of_other, milliseconds(8));
  EXPECT_LT(of_other, milliseconds(60));
  EXPECT_EQ(TakeReadTime(one.connection.get()).count(), 0) << "taken";
}

TEST(ReadTimes, TimeInWhichTheThreadWaitsDoesNotCount) {
  const TcpPair pair;
  BeginReads(pair.connection.get());
  InTimedThread([&] {
    Read(pair);
    std::this_thread::sleep_for(milliseconds(100));
    EndRead();
  });
  EXPECT_LT(TakeReadTime(pair.connection.get()), milliseconds(50));
}

TEST(ReadTimes, ThoseOfOtherThreadsAreNotKept) {
  const TcpPair pair;
  BeginReads(pair.connection.get());
  std::thread([&] {
    Read(pair);
    Work(milliseconds(5));
    EndRead();
  }).join();
  EXPECT_EQ(TakeReadTime(pair.connection.get()).count(), 0);
}

TEST(ReadTimes, WhoReadsASocketForLongMustPollBeforeItReadsMore) {
  const TcpPair pair;
  const Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;  // as gRPC polls
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair.connection.get(), &event), 0);
  ASSERT_EQ(send(pair.host.get(), "xy", 2, 0), 2);
  EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 1000), 1);
  EXPECT_EQ(ReadByte(pair.connection.get()), 1);
  Work(milliseconds(10));
  EXPECT_EQ(ReadByte(pair.connection.get()), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 1000), 1) << "it can still be read";
  EXPECT_EQ(ReadByte(pair.connection.get()), 1);
}

// A thread that gets no processor time is taken for one that does nothing, so some tries may fail.
TEST(ReadTimes, WhatIsReadForLongIsHeldUntilTheThreadPolls) {
  bool is_held = false;
  for (int n = 0; n < 50 && !is_held; ++n) {
    const TcpPair pair;
    const Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, pair.connection.get(), &event), 0);
    InTimedThread([&] {
      Read(pair);
      Work(milliseconds(10));
      EXPECT_EQ(send(pair.host.get(), "x", 1, 0), 1);
      EXPECT_EQ(ReadByte(pair.connection.get()), -1);
      std::atomic<bool> polled{false};
      std::thread other([&] {
        is_held = epoll_wait(epoll.get(), &event, 1, 1) == 0;
        polled = true;
      });
      while (!polled) {
      }
      other.join();
      if (!is_held) return;
      EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 1000), 1);
      EXPECT_EQ(ReadByte(pair.connection.get()), 1);
    });
  }
  EXPECT_TRUE(is_held);
}

TEST(ReadTimes, TheEndOfWhatIsReadForLongIsReadAtOnce) {
  for (const bool is_reset : {false, true}) {
    TcpPair pair;
    InTimedThread([&] {
      Read(pair);
      Work(milliseconds(10));
      const linger now = {.l_onoff = is_reset, .l_linger = 0};
      setsockopt(pair.host.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      pair.host = Descriptor();
      errno = 0;
      EXPECT_EQ(ReadByte(pair.connection.get()), is_reset ? -1 : 0);
      EXPECT_EQ(errno, is_reset ? ECONNRESET : 0);
    });
  }
}

// Reads as many bytes as come at once, at most 512 KiB. Returns their number, or -1.
ssize_t ReadMany(const TcpPair& pair) {
  static std::vector<char> bytes(512 << 10);  // made once, because the time of each read counts
  return ReadFrom(pair.connection.get(), bytes.data(), bytes.size());
}

// Calls the function while bytes come without a pause, in a timed thread.
template <typename Function>
void WhileBytesCome(const TcpPair& pair, const Function& function) {
  BeginReads(pair.connection.get());
  const int size = 512 << 10;
  setsockopt(pair.connection.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
  std::thread sends([&] {
    const std::vector<char> bytes(1 << 20);
    while (send(pair.host.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  const auto wait = [&] {
    while (UnreadOf(pair.connection.get()) < (128 << 10)) std::this_thread::sleep_for(milliseconds(1));
  };
  InTimedThread([&] { function(wait); });
  shutdown(pair.host.get(), SHUT_RDWR);
  shutdown(pair.connection.get(), SHUT_RDWR);
  sends.join();
}

// On a slow processor, reads take so long that a poll is needed, so some tries may fail.
TEST(ReadTimes, WhatIsReadAtOnceMustBeHandledBeforeMoreIsRead) {
  ssize_t last = 0;
  for (int n = 0; n < 50 && last <= 0; ++n) {
    const TcpPair pair;
    WhileBytesCome(pair, [&](const auto& wait) {
      wait();
      EXPECT_EQ(ReadMany(pair), 64 << 10);
      EXPECT_EQ(ReadMany(pair), -1);
      EXPECT_EQ(errno, EAGAIN);
      wait();
      last = ReadMany(pair);
      EndRead();
    });
  }
  EXPECT_EQ(last, 64 << 10) << "no poll is needed";
}

TEST(ReadTimes, AReadOfAsManyBytesAsThereIsRoomForIsNotCut) {
  std::vector<char> bytes(64 << 10);
  ssize_t last = 0;
  for (int n = 0; n < 50 && last <= 0; ++n) {
    const TcpPair pair;
    WhileBytesCome(pair, [&](const auto& wait) {
      wait();
      EXPECT_EQ(ReadFrom(pair.connection.get(), bytes.data(), bytes.size()), 64 << 10);
      wait();
      last = ReadFrom(pair.connection.get(), bytes.data(), bytes.size());
      EndRead();
    });
  }
  EXPECT_EQ(last, 64 << 10);
}

TEST(ReadTimes, MoreIsReadAtOnceAfterReadsThatTookNoTime) {
  ssize_t more = 0;
  for (int n = 0; n < 50 && more < (128 << 10); ++n) {
    const TcpPair pair;
    WhileBytesCome(pair, [&](const auto& wait) {
      wait();
      EXPECT_EQ(ReadMany(pair), 64 << 10);
      EndRead();
      wait();
      more = ReadMany(pair);
      EndRead();
    });
  }
  EXPECT_EQ(more, 128 << 10);
}

TEST(ReadTimes, LessIsReadAtOnceAfterReadsThatTookLong) {
  const TcpPair pair;
  WhileBytesCome(pair, [&](const auto& wait) {
    wait();
    EXPECT_EQ(ReadMany(pair), 64 << 10);
    Work(milliseconds(8));
    EndRead();
    wait();
    const ssize_t fewer = ReadMany(pair);
    EXPECT_LE(fewer, 40 << 10);
    EXPECT_GE(fewer, 16 << 10);
    Work(milliseconds(100));
    EndRead();
    wait();
    EXPECT_EQ(ReadMany(pair), 16 << 10);
    EndRead();
  });
}

TEST(ReadTimes, UnixSocketsAreReadOn) {
  std::array<int, 2> pair = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  const Descriptor host(pair[0]), connection(pair[1]);
  ASSERT_EQ(send(host.get(), "xy", 2, 0), 2);
  EXPECT_EQ(ReadByte(connection.get()), 1);
  Work(milliseconds(10));
  EXPECT_EQ(ReadByte(connection.get()), 1);
}

TEST(ReadTimes, NoDescriptorIsOutOfRange) {
  msghdr message = {};
  InTimedThread([&] {
    for (const int descriptor : {-1, 1 << 16, 1 << 30}) EXPECT_EQ(recvmsg(descriptor, &message, 0), -1);
    EndRead();
  });
  EXPECT_EQ(TakeReadTime(-1).count(), 0);
  EXPECT_EQ(TakeReadTime(1 << 30).count(), 0);
}

}  // namespace
}  // namespace posenc::server
