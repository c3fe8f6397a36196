#include "tools/load/verifier.h"

#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/v1/service.pb.h"
#include "tools/load/exchange.h"
#include "tools/load/mismatch.h"
#include "tools/load/progress.h"

namespace posenc::load::verifier_test {
namespace {

using google::protobuf::Message;

grpc::ByteBuffer ToBytes(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

class VerifierTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Work> MakeWork(const Entry& entry) {
    const auto work = Work::Create(entry, 1, here_);
    EXPECT_TRUE(work.ok()) << work.status();
    return work.value_or(nullptr);
  }
  template <typename Response>
  Response Compute(const Work& work) {
    return static_cast<const Response&>(**work.Compute(here_, 0));
  }

  InProcess here_;
};

TEST_F(VerifierTest, NamesTheFirstElementOfAnAnswerThatDiffers) {
  const auto work = MakeWork({.name = "x", .tokens = 2, .heads = 3, .key_heads = 1, .head_dim = 8});
  const auto right = Compute<v1::ApplyRotaryResponse>(*work);
  EXPECT_FALSE(FindMismatch(*work, right, {ToBytes(right)}));

  auto wrong = right;
  wrong.mutable_k()->mutable_data()->at(2 * 5) ^= 1;
  wrong.mutable_k()->mutable_data()->at(2 * 9) ^= 1;
  const auto mismatch = FindMismatch(*work, right, {ToBytes(wrong)});
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->call, "x");
  EXPECT_EQ(mismatch->tensor, "k");
  EXPECT_EQ(mismatch->element, 5);
  EXPECT_NE(mismatch->expected, mismatch->got);
  EXPECT_THAT(mismatch->got, ::testing::MatchesRegex("0x[0-9a-f]{4} \\(-?[0-9.e-]+\\)"));
}

TEST_F(VerifierTest, AnAnswerThatIsNoneIsWrong) {
  const auto work = MakeWork({.name = "x"});
  const auto right = Compute<v1::ApplyRotaryResponse>(*work);
  EXPECT_TRUE(FindMismatch(*work, right, {}));
  const grpc::Slice slice("\xff", 1);
  EXPECT_TRUE(FindMismatch(*work, right, {grpc::ByteBuffer(&slice, 1)}));
  auto other = right;
  other.mutable_q()->set_dtype(v1::DATA_TYPE_FP16);
  EXPECT_TRUE(FindMismatch(*work, right, {ToBytes(other)}));
  other = right;
  other.mutable_q()->mutable_data()->pop_back();
  EXPECT_TRUE(FindMismatch(*work, right, {ToBytes(other)}));
}

TEST_F(VerifierTest, TilesOfABiasStandBetweenOneAnother) {
  const auto work = MakeWork({.name = "x",
                              .method = "GenerateBias",
                              .transport = Transport::kStream,
                              .dtype = "fp32",
                              .tokens = 4,
                              .heads = 2});
  const auto right = Compute<v1::GenerateBiasResponse>(*work);
  std::vector<v1::StreamBiasResponse> tiles(2);
  for (int tile = 0; tile < 2; ++tile) {  // each of two query rows
    tiles[tile].set_row_begin(2 * tile);
    v1::Tensor& bias = *tiles[tile].mutable_bias();
    bias.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t size : {2, 2, 4}) bias.add_shape(size);
    for (int head = 0; head < 2; ++head) bias.mutable_data()->append(right.bias().data(), head * 64 + tile * 32, 32);
  }
  EXPECT_FALSE(FindMismatch(*work, right, {ToBytes(tiles[0]), ToBytes(tiles[1])}));
  EXPECT_TRUE(FindMismatch(*work, right, {ToBytes(tiles[0])}));  // a tile is missing
  tiles[1].mutable_bias()->mutable_data()->at(32 + 4) ^= 1;      // head 1, query 2, key 1
  const auto mismatch = FindMismatch(*work, right, {ToBytes(tiles[0]), ToBytes(tiles[1])});
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->element, 1 * 16 + 2 * 4 + 1);
  for (const int64_t row : {int64_t{-1}, int64_t{4}, int64_t{1} << 62}) {
    tiles[1].set_row_begin(row);
    EXPECT_TRUE(FindMismatch(*work, right, {ToBytes(tiles[0]), ToBytes(tiles[1])})) << row;
  }
}

TEST_F(VerifierTest, ChunksOfARotationAreFoundByTheirOffset) {
  const auto work =
      MakeWork({.name = "x", .transport = Transport::kStream, .tokens = 2, .heads = 2, .key_heads = 0, .head_dim = 8});
  const auto right = Compute<v1::ApplyRotaryResponse>(*work);
  std::vector<v1::StreamApplyRotaryResponse> answers(3);
  *answers[0].mutable_info() = right.info();
  for (int n = 0; n < 2; ++n) {
    v1::RotaryChunk& chunk = *answers[2 - n].mutable_chunk();  // in reverse order
    chunk.set_operand(v1::OPERAND_QUERY);
    chunk.mutable_rows()->set_byte_offset(32 * n);
    chunk.mutable_rows()->set_data(right.q().data().substr(32 * n, 32));
  }
  const auto find = [&] {
    return FindMismatch(*work, right, {ToBytes(answers[0]), ToBytes(answers[1]), ToBytes(answers[2])});
  };
  EXPECT_FALSE(find());
  answers[1].mutable_chunk()->mutable_rows()->mutable_data()->at(3) ^= 1;
  EXPECT_EQ(find()->element, 17);
  answers[1].mutable_chunk()->mutable_rows()->set_byte_offset(-1);
  EXPECT_TRUE(find());
}

TEST_F(VerifierTest, AnswersOnItsOwnThread) {
  const auto work = MakeWork({.name = "x"});
  const auto right = Compute<v1::ApplyRotaryResponse>(*work);
  std::promise<bool> wrong;
  std::thread::id thread;
  {
    Verifier verifier;
    ASSERT_TRUE(verifier.Offer(
        {.work = work, .offset = 0, .pieces = {ToBytes(right)}, .done = [&](const std::optional<Mismatch>& mismatch) {
           thread = std::this_thread::get_id();
           wrong.set_value(mismatch.has_value());
         }}));
  }
  EXPECT_FALSE(wrong.get_future().get());
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(ServerTiming, IsReadWhereItIsWellFormed) {
  const ServerTimes times = ParseServerTiming("queue;dur=0.012, compute;dur=1.5");
  EXPECT_DOUBLE_EQ(times.queue_us, 12);
  EXPECT_DOUBLE_EQ(times.compute_us, 1500);
  for (const char* text : {"", "queue", "queue;dur=", "queue;dur=x", "cache;desc=hit"}) {
    EXPECT_LT(ParseServerTiming(text).queue_us, 0) << text;
  }
}

TEST(Progress, BucketsAreWithinAnEighth) {
  for (int64_t us = 4; us < int64_t{1} << 34; us += 1 + us / 7) {
    const auto middle = static_cast<double>(Progress::MiddleOf(Progress::BucketOf(us)));
    EXPECT_NEAR(middle, static_cast<double>(us), 0.126 * static_cast<double>(us) + 1) << us;
  }
  EXPECT_EQ(Progress::BucketOf(0), 0);
  EXPECT_EQ(Progress::BucketOf(int64_t{1} << 62), Progress::kBuckets - 1);
}

}  // namespace
}  // namespace posenc::load::verifier_test
