// Regions in requests: which are found, and which are refused. The memory is this test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "posenc/v1/service.pb.h"
#include "posenc/wire/parse.h"
#include "posenc/wire/shared_memory.h"
#include "tests/service/call.h"

namespace posenc::wire::regions_test {
namespace {

constexpr int64_t kBytes = 1000;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

class Memory final : public SharedMemory {
 public:
  Memory(uint64_t inode, bool is_writable) : inode_(inode), writable_(is_writable) {}
  absl::Span<std::byte> bytes() const override { return absl::MakeSpan(bytes_); }
  bool writable() const override { return writable_; }
  std::pair<uint64_t, uint64_t> file() const override { return {1, inode_}; }
  bool damaged() const override { return is_damaged; }
  int64_t file_offset() const override { return begins_at; }
  bool of_other_user() const override { return is_of_other_user; }

  int64_t begins_at = 0;
  bool is_damaged = false;
  bool is_of_other_user = false;

 private:
  mutable std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
  const uint64_t inode_;
  const bool writable_;
};

const std::string kToken(16, 'a'), kAlias(16, 'b'), kOther(16, 'c'), kReadOnly(16, 'd');

class Source final : public SharedMemorySource {
 public:
  std::shared_ptr<const SharedMemory> Find(std::string_view token) const override {
    const auto found = memory.find(std::string(token));
    return found == memory.end() ? nullptr : found->second;
  }
  // kToken and kAlias are two tokens of one file.
  std::map<std::string, std::shared_ptr<Memory>> memory = {{kToken, std::make_shared<Memory>(1, true)},
                                                           {kAlias, std::make_shared<Memory>(1, true)},
                                                           {kOther, std::make_shared<Memory>(2, true)},
                                                           {kReadOnly, std::make_shared<Memory>(3, false)}};
};

v1::Region Part(const std::string& token, int64_t offset, int64_t size) {
  v1::Region region;
  region.set_token(token);
  region.set_offset(offset);
  region.set_byte_size(size);
  return region;
}

v1::ApplyRotaryRequest Rotation(const v1::Region& q, std::optional<v1::Region> output = {}) {
  v1::ApplyRotaryRequest request;
  *request.mutable_q()->mutable_tensor()->mutable_region() = q;
  if (output) *request.mutable_q()->mutable_output() = *output;
  return request;
}

absl::StatusOr<RequestRegions> Find(const google::protobuf::Message& request, const Source& source = {}) {
  return RequestRegions::Find(request, source);
}

TEST(Regions, AreFoundAtAnyDepth) {
  const Source source;
  v1::GenerateTableRequest request;
  auto& table = *request.mutable_rotary()->mutable_settings()->mutable_given_table();
  *table.mutable_cos()->mutable_region() = Part(kToken, 10, 100);
  *table.mutable_sin()->mutable_region() = Part(kOther, 0, kBytes);
  *request.mutable_cos_output() = Part(kToken, 110, 20);
  const auto regions = Find(request, source);
  ASSERT_THAT(regions, IsOk());
  EXPECT_EQ(regions->At(table.cos().region()), source.memory.at(kToken)->bytes().data() + 10);
  EXPECT_EQ(regions->At(request.cos_output()), source.memory.at(kToken)->bytes().data() + 110);
  EXPECT_EQ(regions->read_bytes(), 100 + kBytes);
  EXPECT_EQ(regions->copied_bytes(), 100 + kBytes);
}

TEST(Regions, OfOperandsAreNotCopied) {
  v1::ApplyRotaryRequest request = Rotation(Part(kToken, 0, 300), Part(kOther, 0, 300));
  *request.mutable_positions()->mutable_ids()->mutable_region() = Part(kToken, 300, 7);
  const auto regions = Find(request);
  ASSERT_THAT(regions, IsOk());
  EXPECT_EQ(regions->copied_bytes(), 7);
  v1::RelativeScoresRequest scores;
  *scores.mutable_q()->mutable_region() = Part(kToken, 0, 11);
  *scores.mutable_add_to()->mutable_region() = Part(kToken, 11, 17);
  EXPECT_EQ(Find(scores)->copied_bytes(), 11) << "q is converted first";
}

TEST(Regions, CopiesStayAsTheyWere) {
  const Source source;
  std::byte* const bytes = source.memory.at(kToken)->bytes().data();
  v1::ApplyRotaryRequest request = Rotation(Part(kToken, 0, 8));
  const v1::Region ids = Part(kToken, 8, 3), bounds = Part(kToken, 11, 2);
  *request.mutable_positions()->mutable_ids()->mutable_region() = ids;
  *request.mutable_positions()->mutable_cu_seqlens()->mutable_region() = bounds;
  for (int n = 0; n < 13; ++n) bytes[n] = std::byte(n);
  const auto regions = Find(request, source);
  ASSERT_THAT(regions, IsOk());
  EXPECT_EQ(regions->copies(), "\x8\x9\xa\xb\xc");
  for (int n = 0; n < 13; ++n) bytes[n] = std::byte(100);
  EXPECT_THAT(regions->BytesOf(ids), testing::ElementsAre(std::byte(8), std::byte(9), std::byte(10)));
  EXPECT_THAT(regions->BytesOf(bounds), testing::ElementsAre(std::byte(11), std::byte(12)));
  EXPECT_THAT(regions->BytesOf(request.q().tensor().region()), testing::Each(std::byte(100))) << "read in place";
}

TEST(Regions, OfOtherUsersAreNotReadAtOnce) {
  const Source source;
  v1::ApplyRotaryRequest request = Rotation(Part(kToken, 0, 8));
  const v1::Region ids = Part(kOther, 8, 3);
  *request.mutable_positions()->mutable_ids()->mutable_region() = ids;
  EXPECT_FALSE(Find(request, source)->of_other_user());
  source.memory.at(kToken)->is_of_other_user = true;  // an operand, which is never copied
  const auto regions = Find(request, source);
  ASSERT_THAT(regions, IsOk());
  EXPECT_TRUE(regions->of_other_user());
  EXPECT_EQ(regions->copied_bytes(), 3);
  EXPECT_EQ(regions->copies(), "");
  EXPECT_EQ(regions->BytesOf(ids).data(), source.memory.at(kOther)->bytes().data() + 8);
}

TEST(Regions, HoldTheirMemory) {
  Source source;
  const std::weak_ptr<Memory> memory = source.memory.at(kToken);
  {
    const auto regions = Find(Rotation(Part(kToken, 0, 8)), source);
    ASSERT_THAT(regions, IsOk());
    source.memory.clear();
    EXPECT_FALSE(memory.expired());
  }
  EXPECT_TRUE(memory.expired());
}

TEST(Regions, LieWithinTheirMemory) {
  for (const auto& [offset, size] : {std::pair<int64_t, int64_t>{0, kBytes}, {kBytes, 0}, {kBytes - 1, 1}, {0, 0}}) {
    EXPECT_THAT(Find(Rotation(Part(kToken, offset, size))), IsOk()) << offset << " " << size;
  }
  for (const auto& [offset, size] : {std::pair<int64_t, int64_t>{0, kBytes + 1},
                                     {1, kBytes},
                                     {kBytes + 1, 0},
                                     {kHuge, 1},
                                     {1, kHuge},
                                     {kHuge, kHuge},
                                     {kHuge - kBytes + 1, kBytes},
                                     {kHuge, 0},
                                     {0, kHuge}}) {
    EXPECT_THAT(Find(Rotation(Part(kToken, offset, size))), IsInvalid("OUT_OF_RANGE", "q.tensor.region"))
        << offset << " " << size;
    EXPECT_THAT(Find(Rotation(Part(kOther, 0, 8), Part(kToken, offset, size))), IsInvalid("OUT_OF_RANGE", "q.output"));
  }
  for (const int64_t negative : {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_THAT(Find(Rotation(Part(kToken, negative, 8))), IsInvalid("OUT_OF_RANGE", "q.tensor.region.offset"));
    EXPECT_THAT(Find(Rotation(Part(kToken, 8, negative))), IsInvalid("OUT_OF_RANGE", "q.tensor.region.byte_size"));
  }
}

TEST(Regions, AreNamedByTheirTokenOnly) {
  for (const size_t size : {0, 15, 17}) {
    EXPECT_THAT(Find(Rotation(Part(std::string(size, 'a'), 0, 8))), IsInvalid("MISMATCH", "q.tensor.region.token"));
  }
  const std::string secret = "0123456789abcdef";
  const absl::Status status = Find(Rotation(Part(secret, 0, 8))).status();
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kNotFound, "NOT_FOUND", "q.tensor.region.token"));
  EXPECT_THAT(status.ToString(), testing::Not(testing::HasSubstr(secret)));
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 8), Part(secret, 0, 8))),
              FailsWith(absl::StatusCode::kNotFound, "NOT_FOUND", "q.output.token"));
}

TEST(Regions, StandInPlaceOfData) {
  v1::ApplyRotaryRequest request = Rotation(Part(kToken, 0, 8));
  request.mutable_q()->mutable_tensor()->set_data("12345678");
  EXPECT_THAT(Find(request), IsInvalid("CONFLICT", "q.tensor.data"));
}

TEST(Regions, ThatAreReadOnlyAreNoOutputs) {
  EXPECT_THAT(Find(Rotation(Part(kReadOnly, 0, 8))), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 8), Part(kReadOnly, 0, 8))), IsInvalid("CONFLICT", "q.output"));
}

TEST(Regions, ThatAreDamagedAreRefused) {
  const Source source;
  const auto regions = Find(Rotation(Part(kToken, 0, 8)), source);
  ASSERT_THAT(regions, IsOk());
  EXPECT_THAT(regions->CheckUndamaged(), IsOk());
  source.memory.at(kToken)->is_damaged = true;
  const auto lost = FailsWith(absl::StatusCode::kDataLoss, "DAMAGED", "q.tensor.region");
  EXPECT_THAT(regions->CheckUndamaged(), lost);
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 8)), source), lost);
}

TEST(Outputs, OverlapNothingButTheirOwnOperand) {
  // Other memory, adjacent, in place, and empty.
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 80), Part(kOther, 40, 80))), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 80), Part(kToken, 80, 80))), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 80, 80), Part(kToken, 0, 80))), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 7, 80), Part(kToken, 7, 80))), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 80), Part(kToken, 40, 0))), IsOk());
  // Another token of the same file is the same memory at another address.
  for (const v1::Region& output :
       {Part(kToken, 79, 80), Part(kToken, 1, 79), Part(kAlias, 0, 80), Part(kAlias, 79, 1)}) {
    EXPECT_THAT(Find(Rotation(Part(kToken, 0, 80), output)), IsInvalid("CONFLICT", "q.output"));
  }
}

TEST(Outputs, OverlapNothingInTheirFileWhereverItsMappingsBegin) {
  const Source source;
  source.memory.at(kAlias)->begins_at = 100;
  EXPECT_THAT(Find(Rotation(Part(kToken, 0, 80), Part(kAlias, 0, 80)), source), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 180, 80), Part(kAlias, 0, 80)), source), IsOk());
  EXPECT_THAT(Find(Rotation(Part(kToken, 179, 80), Part(kAlias, 0, 80)), source), IsInvalid("CONFLICT", "q.output"));
  EXPECT_THAT(Find(Rotation(Part(kAlias, 0, 80), Part(kToken, 21, 80)), source), IsInvalid("CONFLICT", "q.output"));
}

TEST(Outputs, OverlapNoOtherOperandOrOutput) {
  v1::ApplyRotaryRequest request = Rotation(Part(kToken, 0, 80), Part(kToken, 0, 80));
  *request.mutable_k()->mutable_tensor()->mutable_region() = Part(kToken, 0, 80);
  EXPECT_THAT(Find(request), IsInvalid("CONFLICT", "q.output")) << "k is read there";
  request = Rotation(Part(kToken, 0, 80), Part(kOther, 0, 80));
  *request.mutable_k()->mutable_output() = Part(kOther, 0, 80);
  EXPECT_THAT(Find(request), IsInvalid("CONFLICT", "q.output")) << "k is written there";
  request = Rotation(Part(kToken, 0, 80), Part(kOther, 0, 80));
  *request.mutable_positions()->mutable_ids()->mutable_region() = Part(kOther, 0, 80);
  EXPECT_THAT(Find(request), IsInvalid("CONFLICT", "q.output")) << "ids are no operand";
}

TEST(Outputs, OfOtherRequestsMayBeInPlace) {
  v1::AddBiasRequest bias;
  *bias.mutable_scores()->mutable_region() = *bias.mutable_output() = Part(kToken, 0, 80);
  EXPECT_THAT(Find(bias), IsOk());
  EXPECT_TRUE(IsInPlace(bias));
  v1::RelativeScoresRequest scores;
  *scores.mutable_q()->mutable_region() = *scores.mutable_output() = Part(kToken, 0, 80);
  EXPECT_THAT(Find(scores), IsInvalid("CONFLICT", "output"));
  EXPECT_FALSE(IsInPlace(scores));
  *scores.mutable_q()->mutable_region() = Part(kToken, 80, 80);
  *scores.mutable_add_to()->mutable_region() = scores.output();
  EXPECT_THAT(Find(scores), IsOk());
  EXPECT_TRUE(IsInPlace(scores));
  EXPECT_FALSE(IsInPlace(Rotation(Part(kToken, 0, 80), Part(kToken, 80, 80))));
  EXPECT_TRUE(WritesRegions(Rotation(Part(kToken, 0, 80), Part(kToken, 80, 80))));
  EXPECT_FALSE(WritesRegions(Rotation(Part(kToken, 0, 80))));
  EXPECT_FALSE(IsInPlace(v1::GetServerInfoRequest()));
  v1::GenerateTableRequest table;
  *table.mutable_cos_output() = *table.mutable_sin_output() = Part(kToken, 0, 80);
  EXPECT_THAT(Find(table), IsInvalid("CONFLICT", "cos_output"));
}

TEST(Regions, AreRefusedWhereThereIsNoSharedMemory) {
  const auto request = Rotation(Part(kToken, 0, 8));
  EXPECT_THAT(RejectUnknown(request), IsInvalid("UNSUPPORTED", "q.tensor.region"));
  bool has_regions = false;
  EXPECT_THAT(RejectUnknown(v1::ApplyRotaryRequest(), &has_regions), IsOk());
  EXPECT_FALSE(has_regions);
  EXPECT_THAT(RejectUnknown(request, &has_regions), IsOk());
  EXPECT_TRUE(has_regions);
}

}  // namespace
}  // namespace posenc::wire::regions_test
