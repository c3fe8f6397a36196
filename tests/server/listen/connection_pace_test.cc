#include "server/listen/connection_pace.h"

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using Clock = ConnectionPace::Clock;

constexpr int kPerSecond = 10, kAtOnce = 20;
constexpr Clock::time_point kStart{std::chrono::hours(1)};
constexpr Peer kPeer = 1, kOther = 2;

Clock::time_point After(double seconds) {
  return kStart + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// How many of the peer's handshakes may begin at that time.
int CountBegun(ConnectionPace* pace, Peer peer, Clock::time_point now) {
  int begun = 0;
  while (pace->Begin(peer, now)) ++begun;
  return begun;
}

TEST(ConnectionPace, LimitsThoseOfAPeer) {
  ConnectionPace pace(kPerSecond);
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  EXPECT_EQ(CountBegun(&pace, kOther, kStart), kAtOnce) << "another peer waits";
  EXPECT_EQ(CountBegun(&pace, kPeer, After(0.09)), 0);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(0.41)), 4);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(3600)), kAtOnce) << "more than at first";
}

TEST(ConnectionPace, OneASecondIsPossible) {
  ConnectionPace pace(1);
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), 2);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(1)), 1);
}

TEST(ConnectionPace, ZeroIsNoLimit) {
  ConnectionPace pace(0);
  for (int n = 0; n < 10'000; ++n) EXPECT_TRUE(pace.Begin(kPeer, kStart));
}

TEST(ConnectionPace, ForgetsPeersWhoseHandshakesAreLongPast) {
  ConnectionPace pace(kPerSecond);
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  for (uint64_t peer = 2; peer < 3000; ++peer) EXPECT_TRUE(pace.Begin(peer, kStart));
  EXPECT_FALSE(pace.Begin(kPeer, kStart)) << "forgotten too early";
}

}  // namespace
}  // namespace posenc::server
