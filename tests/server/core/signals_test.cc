#include "server/core/signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace posenc::server {
namespace {

TEST(Signals, ToStopComeFirstAndLeaveTheOthersBlocked) {
  Signals signals;
  const std::chrono::seconds time(30);
  raise(SIGHUP);
  EXPECT_EQ(signals.Wait(time), SIGHUP);
  raise(SIGHUP);
  raise(SIGTERM);
  EXPECT_EQ(signals.Wait(time), SIGTERM);
  EXPECT_EXIT(raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
  raise(SIGHUP);  // ends nothing
  EXPECT_EQ(signals.Wait(time), SIGHUP);
}

}  // namespace
}  // namespace posenc::server
