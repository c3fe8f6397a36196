// Calls that wait for their turn, and let others have theirs.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "posenc/base/interruption.h"
#include "posenc/v1/service.pb.h"
#include "server/access/policy.h"
#include "server/calls/calls.h"
#include "tests/server/calls/call_fixture.h"

namespace posenc::server::call_turns_test {
namespace {

using Clock = std::chrono::steady_clock;

wire::UnaryOperation Diagnosis(const std::function<void()>& decide) {
  return wire::UnaryOperation::Of<v1::DiagnoseRequest, v1::DiagnoseResponse>(
      [decide](const auto&, const wire::Payloads&, const Limits&, auto*) -> absl::StatusOr<wire::Job> {
        wire::Job job;
        job.decide = [decide](WorkPool&, const Cancellation&) {
          decide();
          return absl::OkStatus();
        };
        return job;
      });
}

class CallTurnsTest : public CallTest {
 protected:
  static Config WithOneThread() {
    Config config = TestConfig();
    config.threads = 1;
    return config;
  }
  CallTurnsTest() : CallTest(WithOneThread()) {}

  // The operation must outlive the call.
  void Serve(const wire::UnaryOperation& operation, FakeRpc* rpc) {
    rpc->Serve(
        [&](Rpc* served, grpc::ByteBuffer* request) { return MakeUnaryCall(core_.get(), operation, served, request); });
  }
  // Returns false if it does not hold after a minute.
  static bool WaitAtInterruptionPoints(const std::function<bool()>& holds) {
    const auto end = Clock::now() + std::chrono::minutes(1);
    while (!holds() && Clock::now() < end) InterruptionPoint();
    return holds();
  }
  static grpc::ByteBuffer Request() { return Buffer(v1::DiagnoseRequest().SerializeAsString()); }
};

TEST_F(CallTurnsTest, WaitingForOthersCostsNothing) {
  Config config = WithOneThread();
  config.max_call_cost = 100;
  core_ = std::make_unique<Core>(config);
  for (const Activity activity : {Activity::kWaiting, Activity::kAwaited}) {
    const auto steps = Diagnosis([activity] {
      const ActivityScope scope(activity);
      for (int n = 0; n < 200; ++n) InterruptionPoint();
    });
    FakeRpc rpc(Request());
    Serve(steps, &rpc);
    const grpc::Status status = rpc.Wait();
    ASSERT_EQ(status.ok(), activity == Activity::kWaiting) << status.error_message();
    if (!status.ok()) {
      EXPECT_EQ(InfoOf(status).reason(), "TOO_LARGE");
    }
  }
}

// The first call computes until the second one, which needs the only thread, has ended.
TEST_F(CallTurnsTest, ALongCallLetsAnotherCallerCompute) {
  Identity one, another;
  one.name = "one";
  another.name = "another";
  for (const bool has_policy : {true, false}) {
    std::atomic<bool> first_computes{false}, second_ended{false};
    double second_ms = 0;
    const auto first = Diagnosis([&] {
      first_computes = true;
      EXPECT_TRUE(WaitAtInterruptionPoints([&] { return second_ended.load(); }));
    });
    const auto second = Diagnosis([&] {
      const auto begin = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      second_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      second_ended = true;
    });
    FakeRpc long_call(Request()), other(Request());
    if (has_policy) {
      long_call.caller = &one;
      other.caller = &another;
    } else {
      long_call.connection_name = "ipv4:192.0.2.1:50051";
      other.connection_name = "ipv4:192.0.2.2:50051";
    }
    Serve(first, &long_call);
    while (!first_computes) std::this_thread::yield();
    Serve(second, &other);
    EXPECT_TRUE(long_call.Wait().ok());
    EXPECT_TRUE(other.Wait().ok());
    const std::string timing = long_call.trailers.find("server-timing")->second;
    double queued = 0;
    ASSERT_EQ(std::sscanf(timing.c_str(), "queue;dur=%lf", &queued), 1) << timing;
    EXPECT_GE(queued, second_ms - 0.001) << "the second call's time is no computation of the first: " << timing;
  }
}

TEST_F(CallTurnsTest, CallsOfOneCallerEndInTheirOrder) {
  Identity one;
  one.name = "one";
  std::atomic<bool> first_computes{false}, second_is_there{false}, first_ended{false};
  const auto first = Diagnosis([&] {
    first_computes = true;
    EXPECT_TRUE(WaitAtInterruptionPoints([&] { return second_is_there.load(); }));
    for (int n = 0; n < 1000; ++n) InterruptionPoint();
    first_ended = true;
  });
  const auto second = Diagnosis([&] { EXPECT_TRUE(first_ended); });
  FakeRpc long_call(Request()), other(Request());
  long_call.caller = other.caller = &one;
  other.number_of_connection = 1;
  Serve(first, &long_call);
  while (!first_computes) std::this_thread::yield();
  Serve(second, &other);
  second_is_there = true;
  EXPECT_TRUE(long_call.Wait().ok());
  EXPECT_TRUE(other.Wait().ok());
}

}  // namespace
}  // namespace posenc::server::call_turns_test
