// Streams of chunks to rotate: their order, their errors, and what they hold.
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "tests/server/calls/call_fixture.h"

namespace posenc::server::call_stream_test {
namespace {

TEST_F(CallTest, ChunksAreAnsweredAsTheWholeIs) {
  FakeRpc whole(Buffer(Rotation(7)));
  Rotate(&whole);
  ASSERT_TRUE(whole.Wait().ok());
  v1::ApplyRotaryResponse response;
  ASSERT_TRUE(response.ParseFromString(BytesOf(whole.messages.at(0))));
  FakeRpc rpc;
  Begin(kChunks, 7, &rpc);
  const grpc::Status& status = rpc.Wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
  v1::StreamApplyRotaryResponse first;
  ASSERT_TRUE(first.ParseFromString(BytesOf(rpc.messages[0])));
  EXPECT_EQ(first.info().SerializeAsString(), response.info().SerializeAsString());
  EXPECT_TRUE(Rows(rpc.messages) == response.q().data());
}

TEST_F(CallTest, AWrongMessageEndsAStreamAfterWhatCameBefore) {
  v1::StreamApplyRotaryRequest beyond;
  beyond.mutable_chunk()->set_operand(v1::OPERAND_QUERY);
  beyond.mutable_chunk()->mutable_rows()->set_byte_offset(kTensorRows * kRowBytes);
  beyond.mutable_chunk()->mutable_rows()->set_data("x");
  v1::StreamApplyRotaryRequest of_k = beyond;
  of_k.mutable_chunk()->set_operand(v1::OPERAND_KEY);
  struct Case {
    std::string message;
    std::string field, operand, byte_offset;
  };
  const std::string done = std::to_string(200 * kRowBytes);
  for (const Case& c : {Case{beyond.SerializeAsString(), "chunk.rows.byte_offset", "OPERAND_QUERY", done},
                        Case{of_k.SerializeAsString(), "chunk.rows.byte_offset", "OPERAND_KEY", "0"},
                        Case{Header(1), "header", "OPERAND_QUERY", done}, Case{"", "part", "OPERAND_QUERY", done},
                        Case{"\x0a", "request", "OPERAND_QUERY", done},
                        Case{std::string("\x12\x02\x08\x09"), "chunk.operand", "OPERAND_QUERY", done},
                        Case{std::string("\x12\x03\xf8\x7f\x01"), "chunk.2047", "OPERAND_QUERY", done}}) {
    FakeRpc rpc;
    Chunks(&rpc);
    rpc.Send(Buffer(Header(0)));
    rpc.Send(Buffer(Chunk(0, 100, 100)));  // chunks may come in any order
    rpc.Send(Buffer(Chunk(0, 0, 100)));
    rpc.Send(Buffer(Chunk(0, 0, 50)));  // and may come twice
    rpc.Send(Buffer(Chunk(0, 300, 100)));
    rpc.Send(Buffer(c.message));
    rpc.Send(Buffer(Chunk(0, 200, 100)));
    const grpc::Status& status = rpc.Wait();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(rpc.messages.size(), 5u) << "all that came before is answered, nothing after";
    auto metadata = MetadataOf(status);
    EXPECT_EQ(metadata["field"], c.field);
    EXPECT_EQ(metadata["operand"], c.operand);
    EXPECT_EQ(metadata["byte_offset"], c.byte_offset);
    EXPECT_EQ(metadata["started"], "true");
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(CallTest, AStreamBeginsWithItsHeader) {
  for (const bool chunk : {true, false}) {
    FakeRpc rpc;
    Chunks(&rpc);
    if (chunk) rpc.Send(Buffer(Chunk(0, 0, 1)));
    rpc.HalfClose();
    const grpc::Status& status = rpc.Wait();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    auto metadata = MetadataOf(status);
    EXPECT_EQ(metadata["field"], "header");
    EXPECT_EQ(metadata["byte_offset"], "0");
    EXPECT_EQ(metadata["started"], "false");
  }
  EXPECT_EQ(core_->admission->counters().failed, 2);
  EXPECT_EQ(core_->admission->counters().started, 2) << "one of them without a message";
}

TEST_F(CallTest, AStreamWhoseAnswersAreNotTakenHoldsFewChunks) {
  FakeRpc rpc;
  Chunks(&rpc);
  rpc.Send(Buffer(Header(0)));
  rpc.WaitForMessages(1);
  rpc.ShutWindow();
  for (size_t row = 0; row < kTensorRows; row += 100) rpc.Send(Buffer(Chunk(0, row, 100)));
  const auto chunk = static_cast<int64_t>(100 * kRowBytes);
  const auto held = [this] { return core_->admission->counters().in_flight_bytes; };
  while (held() < chunk) std::this_thread::yield();
  for (int n = 0; n < 100; ++n) {
    EXPECT_LT(held(), 4 * chunk + 1000);
    std::this_thread::yield();
  }
  rpc.Cancel();
  rpc.Wait();
  EXPECT_LT(rpc.messages.size(), 4u);
  rpc.messages.clear();
  EXPECT_EQ(BytesInTheEnd(), 0);
}

class CrowdedTest : public CallTest {
 protected:
  static Config Crowded() {
    Config config = TestConfig();
    config.max_in_flight_bytes = static_cast<int64_t>(250 * kRowBytes);
    return config;
  }
  CrowdedTest() : CallTest(Crowded()) {}
};

// The budget has room for one chunk of a hundred rows and its answer, but not for two.
TEST_F(CrowdedTest, AStreamWaitsForItsOwnAnswersAndForNobodyElses) {
  {  // Caches the plan, which the budget has no room to make.
    std::unique_ptr<Core> crowded = std::exchange(core_, std::make_unique<Core>(TestConfig()));
    FakeRpc planning(Buffer(Rotation(0)));
    Rotate(&planning);
    ASSERT_TRUE(planning.Wait().ok());
    core_ = std::move(crowded);
  }
  FakeRpc rpc;
  Chunks(&rpc);
  rpc.Send(Buffer(Header(0)));
  rpc.WaitForMessages(1);
  rpc.ShutWindow();
  rpc.Send(Buffer(Chunk(0, 0, 100)));
  rpc.Send(Buffer(Chunk(0, 100, 100)));
  while (core_->admission->counters().in_flight_bytes < static_cast<int64_t>(100 * kRowBytes))
    std::this_thread::yield();

  FakeRpc other;
  Chunks(&other);
  other.Send(Buffer(Header(0)));
  other.Send(Buffer(Chunk(0, 0, 100)));
  const grpc::Status& refused = other.Wait();
  EXPECT_EQ(refused.error_code(), grpc::UNAVAILABLE) << refused.error_message();
  EXPECT_EQ(MetadataOf(refused)["byte_offset"], "0");
  EXPECT_EQ(other.trailers.count("grpc-retry-pushback-ms"), 1u);

  rpc.Cancel();
  EXPECT_EQ(rpc.Wait().error_code(), grpc::CANCELLED);
  rpc.messages.clear();
  other.messages.clear();
  EXPECT_EQ(BytesInTheEnd(), 0);
}

}  // namespace
}  // namespace posenc::server::call_stream_test
