// Calls that wait for their turn, and let others have theirs.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "posenc/base/interruption.h"
#include "posenc/v1/service.pb.h"
#include "server/access/policy.h"
#include "server/grpc/calls.h"
#include "tests/server/grpc/call_fixture.h"

namespace posenc::server::call_turns_test {
namespace {

wire::UnaryOperation Diagnosis(std::function<void()> decide) {
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
TEST_F(CallTurnsTest, ALongComputationLetsAnotherIdentityCompute) {
  Identity one, two;
  one.name = "one";
  two.name = "two";
  std::atomic<bool> first_computes{false}, second_ended{false};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto first = Diagnosis([&] {
    first_computes = true;
    while (!second_ended && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      InterruptionPoint();
    }
    EXPECT_TRUE(second_ended);
  });
  const auto second = Diagnosis([&] { second_ended = true; });
  FakeRpc long_call(Request()), other(Request());
  long_call.caller = &one;
  other.caller = &two;
  Serve(first, &long_call);
  while (!first_computes) std::this_thread::yield();
  Serve(second, &other);
  EXPECT_TRUE(long_call.Wait().ok());
  EXPECT_TRUE(other.Wait().ok());
}

}  // namespace
}  // namespace posenc::server::call_turns_test
