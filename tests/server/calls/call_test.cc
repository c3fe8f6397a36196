// Server calls, many at once.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "tests/server/calls/call_fixture.h"

namespace posenc::server::call_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST_F(CallTest, ManyAtOnceAreAnsweredAsOneAlone) {
  std::vector<std::string> alone;
  grpc::Status status;
  for (int64_t n = 0; n < 9; ++n) {
    alone.push_back(AnswerTo(Kind(n % kKinds), 1000 * n, &status));
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(alone.back().size(), 80'000u);
  }
  OnCallers([&](int caller) {
    for (int64_t round = 0; round < 40; ++round) {
      const int64_t n = (round * 4 + caller) % 9;
      grpc::Status ended;
      EXPECT_TRUE(AnswerTo(Kind(n % kKinds), 1000 * n, &ended) == alone[n]);
      EXPECT_TRUE(ended.ok()) << ended.error_message();
    }
  });
  EXPECT_EQ(BytesInTheEnd(), 0);
  EXPECT_EQ(core_->admission->counters().in_flight_requests, 0);
  EXPECT_EQ(core_->admission->counters().failed, 0);
}

TEST_F(CallTest, MayBeCancelledOrRunOutOfTimeAtAnyMoment) {
  std::atomic<int> answered{0}, cancelled{0}, late{0};
  OnCallers([&](int caller) {
    std::mt19937 random(caller);
    for (int round = 0; round < 60; ++round) {
      const Kind kind = Kind(random() % kKinds);
      FakeRpc rpc(Request(kind, round));
      if (random() % 4 == 0) rpc.time_limit = system_clock::now() + milliseconds(random() % 5);
      Begin(kind, round, &rpc);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (random() % 4 != 0) rpc.Cancel();
      switch (const grpc::Status& status = rpc.Wait(); status.error_code()) {
        case grpc::OK: ++answered; break;
        case grpc::CANCELLED: ++cancelled; break;
        case grpc::DEADLINE_EXCEEDED: ++late; break;
        case grpc::INVALID_ARGUMENT:  // the stream may end before the cancellation arrives
          EXPECT_EQ(kind, kChunks) << status.error_message();
          ++cancelled;
          break;
        default: ADD_FAILURE() << status.error_code() << " " << status.error_message();
      }
    }
  });
  EXPECT_EQ(answered + cancelled + late, kCallers * 60);
  EXPECT_GT(cancelled, 0);
  const Admission::Counters counters = core_->admission->counters();
  EXPECT_EQ(counters.failed, cancelled + late);
  EXPECT_EQ(BytesInTheEnd(), 0);
  EXPECT_EQ(counters.in_flight_requests, 0);
}

TEST_F(CallTest, ADrainUnderLoadAnswersWhatWasAdmittedAndRefusesTheRest) {
  std::atomic<int> answered{0}, refused{0};
  std::thread drain([&] {
    while (answered < 30) std::this_thread::sleep_for(milliseconds(1));
    core_->admission->Drain();
  });
  OnCallers([&](int caller) {
    for (int64_t n = 0;; ++n) {
      FakeRpc rpc(Buffer(Rotation(caller + n)));
      Rotate(&rpc);
      const grpc::Status status = rpc.Wait();
      if (status.ok()) {
        ++answered;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
      EXPECT_EQ(rpc.trailers.count("grpc-retry-pushback-ms"), 0u) << "the client's backoff is longer";
      return;
    }
  });
  drain.join();
  const Admission::Counters counters = core_->admission->counters();
  EXPECT_EQ(refused, kCallers);
  EXPECT_EQ(counters.refused, refused);
  EXPECT_EQ(counters.started, answered + refused);
  EXPECT_EQ(counters.in_flight_requests, 0);
}

class ImpatientTest : public CallTest {
 protected:
  static Config Impatient(int64_t send_timeout_s, int64_t max_call_s) {
    Config config = TestConfig();
    config.send_timeout_s = send_timeout_s;
    config.max_call_s = config.max_stream_s = max_call_s;
    return config;
  }
  ImpatientTest() : CallTest(Impatient(1, 600)) {}

  std::mutex gate_;  // while locked, the pool's threads wait
};

TEST_F(ImpatientTest, AnAnswerThatIsNotTakenIsCancelled) {
  for (const Kind kind : {kRotation, kTable, kChunks}) {
    FakeRpc rpc(Request(kind, 0));
    // The window is shut before anything can have been written.
    if (kind == kChunks) {
      Chunks(&rpc);
      rpc.ShutWindow();
      rpc.Send(Buffer(Header(0)));
    } else {
      const std::lock_guard shut(gate_);
      for (size_t n = 0; n <= core_->pool.threads(); ++n) {
        core_->pool.Submit([this] { const std::lock_guard opened(gate_); }, Lane::kSmall);
      }
      while (core_->pool.waiting() > 0) std::this_thread::yield();
      Begin(kind, 0, &rpc);
      rpc.ShutWindow();
    }
    rpc.Wait();
    rpc.messages.clear();
    EXPECT_EQ(BytesInTheEnd(), 0);
  }
}

// The fake RPC ends the process if a call is cancelled after its end.
TEST_F(ImpatientTest, NoTimerOutlivesItsCall) {
  core_ = std::make_unique<Core>(Impatient(0, 600));
  OnCallers([&](int caller) {
    for (int round = 0; round < 100; ++round) {
      const Kind kind = Kind((round + caller) % kKinds);
      FakeRpc rpc(Request(kind, round));
      Begin(kind, round, &rpc);
      rpc.Wait();
    }
  });
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(ImpatientTest, ACallHasOnlySoMuchTime) {
  core_ = std::make_unique<Core>(Impatient(60, 0));
  for (const Kind kind : {kRotation, kTable}) {
    FakeRpc rpc(Request(kind, 0));
    Begin(kind, 0, &rpc);
    EXPECT_EQ(rpc.Wait().error_code(), grpc::DEADLINE_EXCEEDED);
  }
  FakeRpc idle;
  Chunks(&idle);
  EXPECT_EQ(idle.Wait().error_code(), grpc::DEADLINE_EXCEEDED);
}

TEST_F(CallTest, WhatHasALargeAnswerMovesToTheBulkLaneAndIsPreparedOnce) {
  Config config = TestConfig();
  config.threads = 1;
  core_ = std::make_unique<Core>(config);
  std::mutex mutex;
  std::vector<int64_t> prepared, computed;
  const auto note = [&](std::vector<int64_t>* in, int64_t rows) {
    const std::lock_guard lock(mutex);
    in->push_back(rows);
  };
  const auto generate_table = wire::UnaryOperation::Of<v1::GenerateTableRequest, v1::GenerateTableResponse>(
      [&](const auto& request, const wire::Payloads& payloads, const wire::CallContext& context, auto* response) {
        auto job = wire::Prepare(request, payloads, context, response);
        note(&prepared, request.count());
        job->run = [&, rows = request.count(), run = std::move(job->run)](auto&&... arguments) {
          note(&computed, rows);
          return run(arguments...);
        };
        return job;
      },
      wire::Scheduling::kPreparesQuickly);
  const auto ask = [](int64_t rows) {
    v1::StreamTableRequest request;
    EXPECT_TRUE(request.ParseFromString(Table(0)));
    request.mutable_table()->set_count(rows);
    return Buffer(request.table().SerializeAsString());
  };
  const MakeReactor make = [&](Rpc* rpc, grpc::ByteBuffer* request) {
    return MakeUnaryCall(core_.get(), generate_table, rpc, request);
  };
  // The pool's one thread is busy: what is small is computed by the thread of the small lane.
  FakeRpc large(ask(10'000)), small(ask(10));
  std::promise<void> begun, may_end;
  core_->pool.Submit([&] {
    begun.set_value();
    may_end.get_future().wait();
  });
  begun.get_future().wait();
  large.Serve(make);
  small.Serve(make);
  EXPECT_TRUE(small.Wait().ok());
  {
    const std::lock_guard lock(mutex);
    EXPECT_THAT(prepared, testing::ElementsAre(10'000, 10));
    EXPECT_THAT(computed, testing::ElementsAre(10));
  }
  may_end.set_value();
  EXPECT_TRUE(large.Wait().ok());
  EXPECT_THAT(prepared, testing::ElementsAre(10'000, 10));
  EXPECT_THAT(computed, testing::ElementsAre(10, 10'000));
}

TEST(CallerName, IsThatOfTheIdentityOrOfTheAddress) {
  FakeRpc rpc;
  EXPECT_EQ(CallerName(rpc), "unix");
  rpc.connection_name = "ipv4:192.0.2.1:50051";
  EXPECT_EQ(CallerName(rpc), "192.0.2.1");
  rpc.connection_name = "ipv6:%5B2001:db8:1:2:3::4%5D:50051";
  EXPECT_EQ(CallerName(rpc), "2001:db8:1:2::/64");
  Identity identity;
  identity.name = "train";
  rpc.caller = &identity;
  EXPECT_EQ(CallerName(rpc), "identity train");
}

TEST_F(CallTest, AnAnswerMayOutliveTheServer) {
  FakeRpc rpc(Buffer(Rotation(0)));
  Rotate(&rpc);
  EXPECT_TRUE(rpc.Wait().ok());
  const std::string answer = BytesOf(rpc.messages.at(0));
  EXPECT_GT(core_->admission->counters().in_flight_bytes, 0) << "gRPC has not released it";
  core_.reset();
  EXPECT_EQ(BytesOf(rpc.messages.at(0)), answer);
  rpc.messages.clear();
}

}  // namespace
}  // namespace posenc::server::call_test
