#include "server/grpc/dead_calls.h"

#include <string>

#include "gtest/gtest.h"

namespace posenc::server::dead_calls_test {
namespace {

// Adds dead calls until one of them reaches the limit; returns their number.
size_t AddUntilLimit(DeadCalls* calls, uint64_t number, const std::string& name, size_t most) {
  size_t added = 1;
  while (!calls->Add(number, name, most)) ++added;
  return added;
}

TEST(DeadCalls, OfAConnectionCountLessThoseServedSince) {
  DeadCalls calls;
  calls.CountServed(1, "a");
  EXPECT_FALSE(calls.Add(1, "a", 4));
  EXPECT_FALSE(calls.Add(2, "b", 4));
  EXPECT_FALSE(calls.Add(1, "a", 4));
  calls.CountServed(1, "a");
  EXPECT_EQ(AddUntilLimit(&calls, 1, "a", 4), 3);
  EXPECT_EQ(AddUntilLimit(&calls, 2, "b", 4), 3);
}

TEST(DeadCalls, BeginAnewAtTheLimit) {
  DeadCalls calls;
  for (int n = 0; n < 3; ++n) EXPECT_EQ(AddUntilLimit(&calls, 1, "a", 4), 4);
}

TEST(DeadCalls, AreNotThoseOfAConnectionWithAnotherName) {
  DeadCalls calls;
  for (int n = 0; n < 3; ++n) calls.Add(1, "a", 4);
  EXPECT_EQ(AddUntilLimit(&calls, 1, "b", 4), 4);
  calls.Add(1, "a", 4);
  calls.CountServed(1, "b");  // forgets those of "a", which is closed
  EXPECT_EQ(AddUntilLimit(&calls, 1, "a", 4), 4);
}

TEST(DeadCalls, AreNotThoseOfAConnectionWithAnotherNumber) {
  DeadCalls calls;
  for (int n = 0; n < 3; ++n) calls.Add(1, "a", 4);
  EXPECT_EQ(AddUntilLimit(&calls, 2, "a", 4), 4);
}

TEST(DeadCalls, OfConnectionsWithoutEndAreForgotten) {
  DeadCalls calls;
  calls.Add(1, "first", 2);
  for (uint64_t n = 2; n < 10'000; ++n) calls.Add(n, std::to_string(n), 2);
  EXPECT_FALSE(calls.Add(1, "first", 2));
}

}  // namespace
}  // namespace posenc::server::dead_calls_test
