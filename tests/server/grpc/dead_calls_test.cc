#include "server/grpc/dead_calls.h"

#include <string>

#include "gtest/gtest.h"

namespace posenc::server::dead_calls_test {
namespace {

TEST(DeadCalls, OfAConnectionCountLessThoseServedSince) {
  DeadCalls calls;
  calls.CountServed("a");
  EXPECT_EQ(calls.Add("a"), 1);
  EXPECT_EQ(calls.Add("b"), 1);
  EXPECT_EQ(calls.Add("a"), 2);
  EXPECT_EQ(calls.Add("a"), 3);
  calls.CountServed("a");
  EXPECT_EQ(calls.Add("a"), 3);
  for (int n = 0; n < 9; ++n) calls.CountServed("a");
  EXPECT_EQ(calls.Add("a"), 1);
  EXPECT_EQ(calls.Add("b"), 2);
}

TEST(DeadCalls, OfConnectionsWithoutEndAreForgotten) {
  DeadCalls calls;
  calls.Add("first");
  for (int n = 0; n < 10'000; ++n) calls.Add(std::to_string(n));
  EXPECT_EQ(calls.Add("first"), 1);
}

}  // namespace
}  // namespace posenc::server::dead_calls_test
