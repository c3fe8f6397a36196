// A rotation that a receiving thread computes itself: before its first write it ends soon, and goes on on the pool.
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/base/shared_cache.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "tests/server/calls/fake_memory.h"
#include "tests/server/calls/fake_rpc.h"
#include "tests/service/call.h"

namespace posenc::server::receiving_step_test {
namespace {

constexpr int64_t kTokens = 4;

// `heads` of 64 numbers for each of 4 tokens.
v1::ApplyRotaryRequest Rotation(int64_t heads) {
  v1::ApplyRotaryRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(64);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(7);
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() =
      MakeTensor(DType::kFP32, {1, kTokens, heads, 64}, std::vector<double>(kTokens * heads * 64, 0.5));
  return request;
}

Config TestConfig() {
  Config config;
  config.threads = 3;
  config.max_in_flight_bytes = int64_t{1} << 30;
  return config;
}

[[noreturn]] void ComputeForever() {
  for (;;) InterruptionPoint();
}

// The test's thread is the receiving thread.
class ReceivingStepTest : public testing::Test {
 protected:
  using Run = wire::Job::Run;
  // Computes in place of `real`, which computes the rotation.
  using Compute =
      std::function<absl::Status(const Run& real, const wire::Payloads& payloads, absl::Span<std::byte* const> buffers,
                                 WorkPool& pool, const Cancellation& cancelled)>;

  void Serve(const v1::ApplyRotaryRequest& request, FakeRpc* rpc) { Serve(request, rpc, operation_); }
  void Serve(const v1::ApplyRotaryRequest& request, FakeRpc* rpc, const wire::UnaryOperation& operation) {
    rpc->Serve([&](Rpc* served, grpc::ByteBuffer*) {
      const std::string text = request.SerializeAsString();
      bytes_ = BufferOf(text, text.size() / 2 + 1);
      return MakeUnaryCall(&core_, operation, served, &bytes_);
    });
  }

  // The rotated tensor's bytes, in the answer.
  static std::string Answer(FakeRpc* rpc) {
    EXPECT_TRUE(rpc->Wait().ok()) << rpc->Wait().error_message();
    std::vector<grpc::Slice> slices;
    rpc->messages.at(0).Dump(&slices);
    std::string text;
    for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
    v1::ApplyRotaryResponse response;
    EXPECT_TRUE(response.ParseFromString(text));
    return response.q().data();
  }

  // True if the last computation was the receiving thread's.
  bool at_once() const { return last_thread_ == here_; }

  Compute compute_ = [](const Run& real, const wire::Payloads& payloads, absl::Span<std::byte* const> buffers,
                        WorkPool& pool,
                        const Cancellation& cancelled) { return real(payloads, buffers, pool, cancelled); };
  std::function<void()> make_ready_ = [] {};
  std::atomic<std::thread::id> last_thread_;
  std::atomic<bool> tried_at_once_{false};
  std::set<const void*> parsed_;  // the requests that were prepared, one at a time
  int prepared_ = 0;
  const std::thread::id here_ = std::this_thread::get_id();
  grpc::ByteBuffer bytes_;
  Core core_{TestConfig()};
  const wire::UnaryOperation operation_ = wire::UnaryOperation::Of<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>(
      [this](const auto& request, const wire::Payloads& payloads, const wire::CallContext& context, auto* response) {
        parsed_.insert(&request);
        ++prepared_;
        auto job = wire::Prepare(request, payloads, context, response);
        if (!job.ok()) return job;
        const auto watched = [this](Run real) -> Run {
          return [this, real = std::move(real)](const wire::Payloads& operands, absl::Span<std::byte* const> buffers,
                                                WorkPool& pool, const Cancellation& cancelled) {
            last_thread_ = std::this_thread::get_id();
            if (at_once()) tried_at_once_ = true;
            return compute_(real, operands, buffers, pool, cancelled);
          };
        };
        job->run = watched(std::move(job->run));
        job->make_quick_run = [this, watched, make = std::move(job->make_quick_run)] {
          make_ready_();
          return watched(make());
        };
        return job;
      },
      wire::Scheduling::kAsSmallAsItsRequest);
};

TEST_F(ReceivingStepTest, EndsSoonAndGoesOnOnThePool) {
  const auto expected = posenc::Call(Rotation(1));
  make_ready_ = [&] {
    tried_at_once_ = true;
    ComputeForever();
  };
  FakeRpc rpc;
  Serve(Rotation(1), &rpc);
  EXPECT_EQ(Answer(&rpc), expected->q().data());
  EXPECT_TRUE(tried_at_once_ && !at_once());
  EXPECT_EQ(prepared_, 1) << "nothing is prepared twice";
}

TEST_F(ReceivingStepTest, KeepsARequestWhosePlanIsNotCached) {
  v1::ApplyRotaryRequest request = Rotation(1);
  request.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->set_rope_theta(12345.25);  // no other test's
  FakeRpc rpc;
  Serve(request, &rpc);
  EXPECT_FALSE(Answer(&rpc).empty());
  EXPECT_FALSE(tried_at_once_ || at_once());
  EXPECT_EQ(parsed_.size(), 1) << "both threads prepare the same parsed message";
  EXPECT_EQ(prepared_, 2) << "the first time without computing the plan";
}

TEST_F(ReceivingStepTest, DoesNotWaitForWhatAnotherThreadComputes) {
  const auto expected = posenc::Call(Rotation(1));
  SharedCache<int> cache(1000, [](const int&) { return size_t{4}; });
  std::atomic<bool> computing{false}, may_end{false};
  std::thread other([&] {
    auto value = cache.Get("value", [&]() -> absl::StatusOr<int> {
      computing = true;
      while (!may_end) std::this_thread::yield();
      return 1;
    });
    EXPECT_THAT(value, IsOk());
  });
  while (!computing) std::this_thread::yield();
  make_ready_ = [&] {
    tried_at_once_ = true;
    cache.Get("value", []() -> absl::StatusOr<int> { return absl::InternalError("computed twice"); }).IgnoreError();
  };
  FakeRpc rpc;
  Serve(Rotation(1), &rpc);
  may_end = true;
  EXPECT_EQ(Answer(&rpc), expected->q().data());
  EXPECT_TRUE(tried_at_once_ && !at_once());
  other.join();
}

// A rotation in place, in shared memory.
class InPlaceTest : public ReceivingStepTest {
 protected:
  InPlaceTest() {
    core_.memory = std::make_shared<FakeMemorySource>(memory_);
    Move(request_.mutable_q()->mutable_tensor(), *memory_, 0);
    *request_.mutable_q()->mutable_output() = request_.q().tensor().region();
  }

  // Returns true if the memory then has the rotated input.
  bool ServeInPlace() {
    const auto expected = posenc::Call(Rotation(1));
    FakeRpc rpc;
    Serve(request_, &rpc);
    EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
    return memory_->text() == expected->q().data();
  }

  v1::ApplyRotaryRequest request_ = Rotation(1);
  const std::string input_ = request_.q().tensor().data();
  const std::shared_ptr<FakeMemory> memory_ = std::make_shared<FakeMemory>(input_.size());
};

TEST_F(InPlaceTest, TouchesNoMemoryOfOtherUsers) {
  memory_->is_of_other_user = true;
  EXPECT_TRUE(ServeInPlace());
  EXPECT_FALSE(tried_at_once_);
  memory_->is_of_other_user = false;
  memory_->Write(input_);
  EXPECT_TRUE(ServeInPlace());
  EXPECT_TRUE(tried_at_once_);
}

TEST_F(InPlaceTest, LeavesBeforeItOverwritesItsInput) {
  std::string seen;
  make_ready_ = [&] {
    tried_at_once_ = true;
    ComputeForever();
  };
  compute_ = [&](const Run& real, auto& payloads, auto buffers, auto& pool, auto& cancelled) {
    seen = memory_->text();
    return real(payloads, buffers, pool, cancelled);
  };
  EXPECT_TRUE(ServeInPlace());
  EXPECT_TRUE(tried_at_once_ && !at_once());
  EXPECT_TRUE(seen == input_);
}

TEST_F(InPlaceTest, GoesOnOnceItOverwritesItsInput) {
  compute_ = [&](const Run& real, auto& payloads, auto buffers, auto& pool, auto& cancelled) {
    const auto end = ThreadTime() + std::chrono::milliseconds(50);
    while (ThreadTime() < end) InterruptionPoint();
    return real(payloads, buffers, pool, cancelled);
  };
  EXPECT_TRUE(ServeInPlace());
  EXPECT_TRUE(at_once());
}

TEST_F(ReceivingStepTest, SlowCallsGoToThePoolUntilOneIsQuick) {
  ASSERT_THAT(posenc::Call(Rotation(1)), IsOk());
  const auto serve = [&] {
    FakeRpc rpc;
    Serve(Rotation(1), &rpc);
    Answer(&rpc);
    return at_once();
  };
  EXPECT_TRUE(serve());
  bool slow = true;
  make_ready_ = [&] {
    if (slow) ComputeForever();
  };
  EXPECT_FALSE(serve());
  slow = false;
  EXPECT_FALSE(serve()) << "the last one was slow";
  EXPECT_TRUE(serve()) << "the last one was quick";
}

// Parsing JSON cannot be interrupted, so threads for which other calls wait parse little of it.
TEST_F(ReceivingStepTest, ReadsFewValuesOfJson) {
  struct Reading {
    int64_t most_values;
    bool at_once;
  };
  const auto readings = [&](int64_t values) {
    std::vector<Reading> seen;
    const auto read = [&](const std::string&, int64_t most_values, Call*,
                          Prepared*) -> absl::StatusOr<UnaryMethod::Prepare> {
      seen.push_back({most_values, std::this_thread::get_id() == here_});
      if (values > most_values) return WouldBlock();
      return absl::UnimplementedError("read");
    };
    FakeRpc rpc;
    rpc.Serve([&](Rpc* served, grpc::ByteBuffer*) {
      bytes_ = BufferOf("", 1);
      return MakeUnaryCall(&core_, {operation_.rpc, operation_.scheduling, read}, served, &bytes_);
    });
    rpc.Wait();
    return seen;
  };
  const std::vector<Reading> few = readings(150), many = readings(4000), most = readings(100'000);
  ASSERT_EQ(few.size(), 1);
  EXPECT_TRUE(few[0].at_once && few[0].most_values <= 320) << "0.13 ms";
  ASSERT_EQ(many.size(), 2);
  EXPECT_FALSE(many[1].at_once);
  ASSERT_EQ(most.size(), 2);
  EXPECT_FALSE(most[1].at_once);
}

}  // namespace
}  // namespace posenc::server::receiving_step_test
