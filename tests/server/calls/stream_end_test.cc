// The end of a stream that holds much memory: its status does not wait for the pool, and a pool thread frees the
// memory.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "tests/server/calls/call_fixture.h"

namespace posenc::server::stream_end_test {
namespace {

constexpr int64_t kMuch = 2 << 20;

// The pool has one thread. The test's thread receives.
class StreamEndTest : public CallTest {
 protected:
  static Config OneThread() {
    Config config = TestConfig();
    config.threads = 1;
    return config;
  }
  explicit StreamEndTest(const Config& config = OneThread()) : CallTest(config) {}

  // Submits a task that occupies the pool's thread until Release(). It gives up after a minute, so that a stream which
  // waits for the thread fails the test instead of blocking it.
  void Block() {
    core_->pool.Submit([this] {
      blocked_.set_value();
      in_time_ = released_.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    });
  }
  void WaitUntilBlocked() { blocked_.get_future().wait(); }
  // Returns false if the thread was not blocked until now.
  bool Release(FakeRpc* rpc) {
    released_.set_value();
    rpc->Wait();
    rpc->messages.clear();
    EXPECT_EQ(BytesInTheEnd(), 0);
    core_.reset();  // joins the thread
    return in_time_;
  }

  // Serves a stream of tables that holds much memory. The pool's thread is blocked after the first tile.
  void ServeTiles(int64_t rows, const absl::Status& status, FakeRpc* rpc) {
    tiles_.emplace(wire::TileOperation::Of<v1::StreamTableRequest>(
        [this, rows, status](const auto&, const wire::Payloads&, const Limits&) -> absl::StatusOr<wire::TileStream> {
          Block();
          const std::shared_ptr<std::vector<char>> kept(new std::vector<char>(kMuch), [this](auto* memory) {
            delete memory;
            freed_by_ = std::this_thread::get_id();
          });
          return wire::TileStream{rows, 1, [kept, status](int64_t, auto*) {
                                    wire::Job job;
                                    job.run = [status](const auto&, auto, auto&, const auto&) { return status; };
                                    return job;
                                  }};
        }));
    rpc->Serve(
        [&](Rpc* served, grpc::ByteBuffer* request) { return MakeTileStream(core_.get(), *tiles_, served, request); });
    WaitUntilBlocked();
  }
  Admission::Counters Counters() const { return core_->admission->counters(); }

  std::promise<void> blocked_, released_;
  bool in_time_ = false;
  std::optional<wire::TileOperation> tiles_;
  std::thread::id freed_by_;
};

TEST_F(StreamEndTest, TilesAreFreedWithTheLastOne) {
  FakeRpc rpc(Buffer(Table(0)), FakeRpc::Reactions::kWhileWaiting);
  ServeTiles(1, absl::OkStatus(), &rpc);
  EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
  EXPECT_EQ(Counters().in_flight_requests, 0);
  EXPECT_LT(Counters().in_flight_bytes, kMuch);
  EXPECT_NE(freed_by_, std::thread::id());
  EXPECT_NE(freed_by_, std::this_thread::get_id());
  EXPECT_TRUE(Release(&rpc));
}

TEST_F(StreamEndTest, TilesOfACallerWhoIsGoneAreChargedUntilTheyAreFreed) {
  FakeRpc rpc(Buffer(Table(0)), FakeRpc::Reactions::kWhileWaiting);
  ServeTiles(2, absl::OkStatus(), &rpc);
  rpc.Cancel();
  EXPECT_EQ(rpc.Wait().error_code(), grpc::CANCELLED);
  EXPECT_EQ(Counters().in_flight_requests, 0);
  EXPECT_GE(Counters().in_flight_bytes, kMuch);
  EXPECT_EQ(freed_by_, std::thread::id());
  EXPECT_TRUE(Release(&rpc));
  EXPECT_NE(freed_by_, std::thread::id());
  EXPECT_NE(freed_by_, std::this_thread::get_id());
}

TEST_F(StreamEndTest, ATileThatFailsFreesTheOthersOnItsThread) {
  FakeRpc rpc(Buffer(Table(0)), FakeRpc::Reactions::kWhileWaiting);
  ServeTiles(2, absl::InvalidArgumentError("wrong"), &rpc);
  EXPECT_EQ(rpc.Wait().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_LT(Counters().in_flight_bytes, kMuch);
  EXPECT_NE(freed_by_, std::thread::id());
  EXPECT_NE(freed_by_, std::this_thread::get_id());
  EXPECT_TRUE(Release(&rpc));
}

TEST_F(StreamEndTest, AHeaderOfChunksIsChargedUntilItIsFreed) {
  constexpr int64_t kTokens = 200'000;
  v1::StreamApplyRotaryRequest request;
  ASSERT_TRUE(request.ParseFromString(Header(0)));
  v1::ApplyRotaryRequest& header = *request.mutable_header();
  header.mutable_q()->mutable_tensor()->set_shape(1, kTokens);
  v1::Tensor& ids = *header.mutable_positions()->mutable_ids();
  ids.set_dtype(v1::DATA_TYPE_INT64);
  ids.add_shape(kTokens);
  ids.set_data(std::string(kTokens * sizeof(int64_t), '\0'));
  FakeRpc rpc({}, FakeRpc::Reactions::kWhileWaiting);
  Chunks(&rpc);
  rpc.Send(Buffer(request.SerializeAsString()));
  rpc.WaitForMessages(1);
  Block();
  WaitUntilBlocked();
  rpc.HalfClose();
  EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
  EXPECT_EQ(Counters().in_flight_requests, 0);
  EXPECT_GE(Counters().in_flight_bytes, 1 << 20);
  EXPECT_TRUE(Release(&rpc));
}

class HastyTest : public StreamEndTest {
 protected:
  static Config Hasty() {
    Config config = OneThread();
    config.receive_timeout_s = 1;
    return config;
  }
  HastyTest() : StreamEndTest(Hasty()) {}
};

// A client may wait for each answer before it sends its next message.
TEST_F(HastyTest, AStreamDoesNotEndWhileItsClientWaitsForThePool) {
  Block();
  WaitUntilBlocked();
  FakeRpc rpc;
  rpc.Send(Buffer(Header(0)));
  Chunks(&rpc);
  {
    std::promise<void> late;
    const auto timer = core_->timers.After(std::chrono::seconds(2), [&late] { late.set_value(); });
    late.get_future().wait();
  }
  rpc.HalfClose();
  EXPECT_TRUE(Release(&rpc));
  EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
}

}  // namespace
}  // namespace posenc::server::stream_end_test
