// The memory of a call is charged while it has it, and refused where there is none.
#include <array>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "server/core/signals.h"
#include "tests/server/calls/call_fixture.h"
#include "tests/server/calls/fake_memory.h"

namespace posenc::server::call_memory_test {
namespace {

// The bytes for a diagnosis are admitted before `decide` computes the answer.
TEST_F(CallTest, AnOverloadIsToldBeforeAnythingIsDecided) {
  Config config = TestConfig();
  config.max_in_flight_bytes = 200'000;
  core_ = std::make_unique<Core>(config);
  Charge others;
  ASSERT_EQ(core_->admission->AdmitBytes(190'000, 0, &others), Admission::Verdict::kAdmitted);
  bool decided = false;
  const auto diagnose = wire::UnaryOperation::Of<v1::DiagnoseRequest, v1::DiagnoseResponse>(
      [&](const auto&, const wire::Payloads&, const Limits&, auto*) -> absl::StatusOr<wire::Job> {
        wire::Job job;
        job.decide = [&](WorkPool&, const Cancellation&) {
          decided = true;
          return absl::OkStatus();
        };
        return job;
      });
  FakeRpc rpc(Buffer(v1::DiagnoseRequest().SerializeAsString()));
  rpc.Serve(
      [&](Rpc* served, grpc::ByteBuffer* request) { return MakeUnaryCall(core_.get(), diagnose, served, request); });
  EXPECT_EQ(rpc.Wait().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(rpc.trailers.count("grpc-retry-pushback-ms"), 1u);
  EXPECT_FALSE(decided);
}

// Answers a diagnosis with what `decide` returns. `prepare` runs before it.
wire::UnaryOperation Diagnosis(
    const std::function<std::shared_ptr<void>()>& prepare, const std::function<void()>& decide = [] {}) {
  return wire::UnaryOperation::Of<v1::DiagnoseRequest, v1::DiagnoseResponse>(
      [prepare, decide](const auto&, const wire::Payloads&, const Limits&, auto*) -> absl::StatusOr<wire::Job> {
        wire::Job job;
        job.decide = [decide, kept = prepare()](WorkPool&, const Cancellation&) {
          decide();
          return absl::OkStatus();
        };
        return job;
      });
}

class MemoryTest : public CallTest {
 protected:
  static Config WithLittleMemory() {
    Config config = TestConfig();
    config.max_in_flight_bytes = 4 << 20;
    return config;
  }
  // Links the server's operator new, also where AddressSanitizer has one.
  MemoryTest() : CallTest(WithLittleMemory()) { CountGmpMemory(); }

  // Serves the operation. Returns the status' code and its reason.
  std::pair<grpc::StatusCode, std::string> Serve(const wire::UnaryOperation& operation) {
    FakeRpc rpc(Buffer(v1::DiagnoseRequest().SerializeAsString()));
    rpc.Serve(
        [&](Rpc* served, grpc::ByteBuffer* request) { return MakeUnaryCall(core_.get(), operation, served, request); });
    const grpc::Status status = rpc.Wait();
    return {status.error_code(), status.ok() ? "" : InfoOf(status).reason()};
  }
  int64_t BytesNow() const { return core_->admission->counters().in_flight_bytes; }
};

TEST_F(MemoryTest, OfACallIsChargedUntilItEnds) {
  int64_t during = 0;
  EXPECT_EQ(
      Serve(Diagnosis([] { return std::make_shared<std::vector<char>>(3 << 20); }, [&] { during = BytesNow(); })).first,
      grpc::OK);
  EXPECT_GE(during, 3 << 20);
  EXPECT_LT(during, (3 << 20) + (128 << 10));
  EXPECT_EQ(BytesInTheEnd(), 0);
}

// A message of 1 MB in DATA frames of 24 bytes (gRPC joins shorter slices that are made here): gRPC's list of them and
// the call's own take 80 bytes or more for each.
TEST_F(MemoryTest, OfShortFramesIsChargedLikeTheirMessage) {
  const std::string padding(1'000'000, 'x');
  v1::DiagnoseRequest request;
  request.mutable_hints()->set_request_id(padding);
  v1::StreamApplyRotaryRequest header;
  ASSERT_TRUE(header.ParseFromString(Header(0)));
  header.mutable_header()->mutable_hints()->set_request_id(padding);
  const auto diagnose = Diagnosis([] { return nullptr; });
  for (const size_t frame : {size_t{16'384}, size_t{24}}) {
    const auto expect = [frame](const grpc::Status& status) {
      ASSERT_EQ(status.error_code(), frame == 24 ? grpc::RESOURCE_EXHAUSTED : grpc::OK) << status.error_message();
      if (status.ok()) return;
      EXPECT_EQ(InfoOf(status).reason(), "TOO_LARGE");
      EXPECT_EQ(MetadataOf(status)["field"], kWholeRequest);
    };
    FakeRpc unary(BufferOf(request.SerializeAsString(), frame));
    unary.Serve(
        [&](Rpc* served, grpc::ByteBuffer* bytes) { return MakeUnaryCall(core_.get(), diagnose, served, bytes); });
    expect(unary.Wait());
    FakeRpc stream;
    Chunks(&stream);
    stream.Send(BufferOf(header.SerializeAsString(), frame));
    stream.HalfClose();
    expect(stream.Wait());
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatWasFreedIsNotCharged) {
  for (int n = 0; n < 3; ++n) {
    int64_t during = -1;
    const auto in_turn = [] {
      for (int block = 0; block < 10; ++block) std::vector<char>(3 << 20);
      return nullptr;
    };
    EXPECT_EQ(Serve(Diagnosis(in_turn, [&] { during = BytesNow(); })).first, grpc::OK);
    EXPECT_GE(during, 0);
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatNeverFitsIsTooLarge) {
  const auto large = Diagnosis([] { return std::make_shared<std::vector<char>>(5 << 20); });
  EXPECT_THAT(Serve(large), testing::Pair(grpc::RESOURCE_EXHAUSTED, "TOO_LARGE"));
  const auto in_small_blocks = Diagnosis([] {
    auto blocks = std::make_shared<std::list<std::array<char, 1000>>>();
    for (int n = 0; n < 5000; ++n) blocks->emplace_back();
    return blocks;
  });
  EXPECT_THAT(Serve(in_small_blocks), testing::Pair(grpc::RESOURCE_EXHAUSTED, "TOO_LARGE"));
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatDoesNotFitNowIsAnOverload) {
  Charge others;
  ASSERT_EQ(core_->admission->AdmitBytes(3 << 20, 0, &others), Admission::Verdict::kAdmitted);
  const auto operation = Diagnosis([] { return std::make_shared<std::vector<char>>(2 << 20); });
  EXPECT_THAT(Serve(operation), testing::Pair(grpc::UNAVAILABLE, "OVERLOADED"));
  others.Return();
  EXPECT_EQ(Serve(operation).first, grpc::OK);
  EXPECT_EQ(BytesInTheEnd(), 0);
}

// Also where the plan was cached by another call: a stream holds it after the cache has evicted it.
TEST_F(MemoryTest, OfAPlanIsChargedToEachStreamThatHoldsIt) {
  v1::StreamApplyRotaryRequest request;
  v1::ApplyRotaryRequest& header = *request.mutable_header();
  header = Rotary(0);
  header.mutable_rotary()->mutable_settings()->set_rotary_dim(65536);
  header.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
  header.mutable_q()->mutable_tensor()->clear_data();
  header.mutable_q()->mutable_tensor()->set_shape(3, 65536);
  for (int n = 0; n < 2; ++n) {
    FakeRpc rpc;
    Chunks(&rpc);
    rpc.Send(Buffer(request.SerializeAsString()));
    rpc.WaitForMessages(1);
    EXPECT_GE(BytesNow(), 256 << 10) << n;
    EXPECT_LT(BytesNow(), 512 << 10) << n;
    rpc.HalfClose();
    EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, OfAStreamsRequestIsChargedUntilItsFirstTile) {
  const auto memory = std::make_shared<const FakeMemory>(64);
  core_->memory = std::make_shared<FakeMemorySource>(memory);
  std::vector<int64_t> charged;
  std::vector<long> users;  // of the shared memory
  const auto operation = wire::TileOperation::Of<v1::StreamTableRequest>(
      [&](const auto&, const wire::Payloads&, const Limits&) -> absl::StatusOr<wire::TileStream> {
        return wire::TileStream{2, 1, [&](int64_t, auto*) {
                                  charged.push_back(BytesNow());
                                  users.push_back(memory.use_count());
                                  return wire::Job();
                                }};
      });
  v1::StreamTableRequest request;
  request.mutable_table()->mutable_hints()->set_request_id(std::string(100'000, 'x'));
  v1::Tensor& ids = *request.mutable_table()->mutable_positions()->mutable_ids();
  ids.set_dtype(v1::DATA_TYPE_INT64);
  ids.add_shape(8);
  ids.set_data(std::string(64, '\0'));
  Move(&ids, *memory, 0);
  FakeRpc rpc(Buffer(request.SerializeAsString()));
  rpc.Serve(
      [&](Rpc* served, grpc::ByteBuffer* bytes) { return MakeTileStream(core_.get(), operation, served, bytes); });
  ASSERT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
  ASSERT_EQ(charged.size(), 2u);
  EXPECT_GE(charged[0], 100'000);
  EXPECT_LT(charged[1], 10'000);
  EXPECT_EQ(users[1], users[0] - 1);
}

}  // namespace
}  // namespace posenc::server::call_memory_test
