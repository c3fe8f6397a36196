#include "server/listen/handshake_pace.h"

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using Clock = HandshakePace::Clock;

constexpr int kAtOnce = static_cast<int>(HandshakePace::kAtOnce);
constexpr Clock::time_point kStart{std::chrono::hours(1)};
constexpr Peer kPeer = 1, kOther = 2;

Clock::time_point After(double seconds) {
  return kStart + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// How many of the peer's handshakes may begin at that time; they have the ports from `port` on.
int CountBegun(HandshakePace* pace, Peer peer, Clock::time_point now, uint16_t port = 0) {
  int begun = 0;
  while (pace->Begin(peer, port++, now)) ++begun;
  return begun;
}

TEST(HandshakePace, LimitsThoseOfAPeer) {
  HandshakePace pace;
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  EXPECT_EQ(CountBegun(&pace, kOther, kStart), kAtOnce) << "another peer waits";
  EXPECT_EQ(CountBegun(&pace, kPeer, After(0.9 / HandshakePace::kPerSecond)), 0);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(4.1 / HandshakePace::kPerSecond)), 4);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(3600)), kAtOnce) << "more than at first";
}

TEST(HandshakePace, ThoseThatLedToACallDoNotCount) {
  HandshakePace pace;
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  for (int call = 0; call < 3; ++call) {
    pace.End(kPeer, 5, kStart);
    pace.End(kPeer, 6, kStart);
  }
  pace.End(kPeer, 500, kStart);  // began none
  pace.End(kOther, 7, kStart);
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart, 1000), 2);
}

TEST(HandshakePace, ACallLongAfterItsHandshakeAllowsNoOther) {
  HandshakePace pace;
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  EXPECT_EQ(CountBegun(&pace, kPeer, After(3), 1000), kAtOnce);
  for (int port = 0; port < kAtOnce; ++port) pace.End(kPeer, static_cast<uint16_t>(port), After(3));
  EXPECT_EQ(CountBegun(&pace, kPeer, After(3), 2000), 0);
}

TEST(HandshakePace, ForgetsPeers) {
  HandshakePace pace;
  EXPECT_EQ(CountBegun(&pace, kPeer, kStart), kAtOnce);
  for (uint64_t peer = 2; peer < 3000; ++peer) EXPECT_TRUE(pace.Begin(peer, 1, kStart));
  EXPECT_FALSE(pace.Begin(kPeer, 1, kStart)) << "forgotten too early";
}

}  // namespace
}  // namespace posenc::server
