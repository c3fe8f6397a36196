#include "server/listen/read_times.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "server/core/descriptor.h"
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
  TakeReadTime(one.connection.get());  // of earlier sockets
  TakeReadTime(other.connection.get());
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
  TakeReadTime(pair.connection.get());
  InTimedThread([&] {
    Read(pair);
    std::this_thread::sleep_for(milliseconds(100));
    EndRead();
  });
  EXPECT_LT(TakeReadTime(pair.connection.get()), milliseconds(50));
}

TEST(ReadTimes, ThoseOfOtherThreadsAreNotKept) {
  const TcpPair pair;
  TakeReadTime(pair.connection.get());
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
