// Mismatches that the verification must find: it must be able to fail.
#include "tools/load/mismatch.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/in_process/in_process.h"
#include "posenc/v1/service.pb.h"
#include "tools/load/work.h"

namespace posenc::load::load_mismatch_test {
namespace {

constexpr int64_t kRow = 8 * 2;  // bytes per head row of q

grpc::ByteBuffer Bytes(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

// A stream of q alone: four tokens of one head.
class Streamed : public testing::Test {
 protected:
  Streamed() {
    Entry entry{.name = "stream", .transport = Transport::kStream, .tokens = 4, .heads = 1, .key_heads = 0};
    entry.head_dim = 8;
    work_ = *Work::Create(entry, 1, here_);
    expected_ = *work_->Compute(here_, 0);
    q_ = static_cast<const v1::ApplyRotaryResponse&>(*expected_).q().data();
  }

  // Rows [from, to) of the answer, after `change`.
  grpc::ByteBuffer Chunk(int64_t from, int64_t to, const std::function<void(std::string&)>& change = {}) {
    std::string bytes = q_.substr(from * kRow, (to - from) * kRow);
    if (change) change(bytes);
    v1::StreamApplyRotaryResponse response;
    response.mutable_chunk()->set_operand(v1::OPERAND_QUERY);
    response.mutable_chunk()->mutable_rows()->set_byte_offset(from * kRow);
    response.mutable_chunk()->mutable_rows()->set_data(bytes);
    return Bytes(response);
  }
  std::string Found(const std::vector<grpc::ByteBuffer>& pieces) {
    const auto mismatch = FindMismatch(*work_, *expected_, pieces, {});
    return mismatch ? mismatch->tensor + ": " + mismatch->expected + ", " + mismatch->got : "";
  }

  InProcess here_{WholeMachine()};
  std::shared_ptr<const Work> work_;
  std::unique_ptr<google::protobuf::Message> expected_;
  std::string q_;
};

TEST_F(Streamed, PiecesMayComeInAnyOrder) {
  EXPECT_EQ(Found({Chunk(0, 4)}), "");
  EXPECT_EQ(Found({Chunk(2, 4), Chunk(0, 1), Chunk(1, 2)}), "");
}

TEST_F(Streamed, WhatComesTwiceDoesNotHideWhatIsMissing) {
  EXPECT_EQ(Found({Chunk(0, 2)}), "q: 64 bytes, 32 bytes");
  EXPECT_EQ(Found({Chunk(0, 2), Chunk(0, 2)}), "q: byte 32 once, it twice");
  EXPECT_EQ(Found({Chunk(0, 1), Chunk(2, 4)}), "q: byte 16 once, none");
  EXPECT_EQ(Found({}), "q: 64 bytes, 0 bytes");
}

TEST_F(Streamed, OneBitIsEnough) {
  EXPECT_THAT(Found({Chunk(0, 2), Chunk(2, 4, [](std::string& bytes) { bytes[5] ^= 1; })}),
              testing::StartsWith("q: 0x"));
}

TEST(LoadWork, QAndKHoldDifferentNumbers) {
  InProcess here{WholeMachine()};
  const auto work = Work::Create({.name = "both", .heads = 2, .key_heads = 2, .head_dim = 8}, 1, here);
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_EQ((*work)->tensors().size(), 2);
  EXPECT_NE((*work)->tensors()[0], (*work)->tensors()[1]);
}

}  // namespace
}  // namespace posenc::load::load_mismatch_test
