#include "tools/load/mix.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/in_process/in_process.h"
#include "posenc/v1/service.pb.h"
#include "tools/files/random.h"
#include "tools/load/work.h"

namespace posenc::load::mix_test {
namespace {

using ::testing::HasSubstr;

constexpr char kTwo[] = R"({"version": 1, "seed": 7, "calls": [
  {"name": "decode", "weight": 3, "offsets": [0, 10, 20]},
  {"name": "table", "method": "GenerateTable", "transport": "stream", "dtype": "fp32", "tokens": 64, "head_dim": 64,
   "request": {"form": "TABLE_FORM_DUPLICATED", "precision": {"preset": "PRECISION_PRESET_F32"}}}]})";

Mix Parse(const std::string& json) {
  auto mix = ParseMix(json, "");
  EXPECT_TRUE(mix.ok()) << mix.status();
  return mix.ok() ? *mix : Mix{};
}

std::string Refusal(const std::string& json) { return std::string(ParseMix(json, "").status().message()); }

TEST(Mix, ReadsWhatItWrites) {
  const Mix mix = Parse(kTwo);
  ASSERT_EQ(mix.entries.size(), 2);
  EXPECT_EQ(mix.seed, 7);
  EXPECT_EQ(mix.entries[0].method, "ApplyRotary");
  EXPECT_EQ(mix.entries[0].heads, 32);
  EXPECT_EQ(mix.entries[0].offsets, (std::vector<int64_t>{0, 10, 20}));
  EXPECT_EQ(mix.entries[1].transport, Transport::kStream);
  const std::string written = MixToJson(mix);
  EXPECT_EQ(MixToJson(Parse(written)), written);
}

TEST(Mix, ChoosesByWeightAndSeed) {
  const Mix mix = Parse(kTwo);
  const Chooser chooser(mix), recorded(Parse(MixToJson(mix)));
  constexpr int kCalls = 40'000;
  std::map<std::pair<size_t, size_t>, int> counts;
  double verified = 0;
  bool differs = false;
  for (int n = 0; n < kCalls; ++n) {
    const Choice choice = chooser.At(5, n), again = recorded.At(5, n), other = chooser.At(6, n);
    ASSERT_EQ(choice.entry, again.entry);
    ASSERT_EQ(choice.offset, again.offset);
    ASSERT_EQ(choice.verify, again.verify);
    differs |= choice.entry != other.entry;
    counts[{choice.entry, choice.offset}] += 1;
    verified += choice.verify < 0.01 ? 1 : 0;
  }
  EXPECT_TRUE(differs);
  ASSERT_EQ(counts.size(), 4);
  for (size_t offset = 0; offset < 3; ++offset) EXPECT_NEAR(counts[std::pair(0, offset)], kCalls / 4.0, 500);
  EXPECT_NEAR(counts[std::pair(1, 0)], kCalls / 4.0, 500);
  EXPECT_NEAR(verified, kCalls / 100.0, 100);
}

TEST(Mix, RefusesNamingTheField) {
  EXPECT_THAT(Refusal("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(Refusal(R"({"calls": []})"), HasSubstr("version: is 0; must be 1"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": []})"), HasSubstr("calls"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{}], "sead": 2})"), HasSubstr("sead"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{}, {"token": 2}]})"), HasSubstr("calls[1].token"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"tokens": "2"}]})"), HasSubstr("calls[0].tokens"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"tokens": 0}]})"), HasSubstr("tokens: is 0"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"weight": 0}]})"), HasSubstr("weight: is 0"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"offsets": []}]})"), HasSubstr("offsets"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"offsets": [0.5]}]})"), HasSubstr("offsets"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"transport": "pigeon"}]})"), HasSubstr("transport"));
  EXPECT_THAT(Refusal(R"({"version": 1, "calls": [{"model": "/nowhere.json"}]})"), HasSubstr("/nowhere.json"));
  EXPECT_THAT(Refusal(R"({"version": 1, "seed": -1, "calls": [{}]})"), HasSubstr("seed"));
}

TEST(Work, SaysWhatEachMethodAnswers) {
  InProcess here;
  for (const auto& [method, bytes] : {std::pair("ApplyRotary", 2 * 40 * 128 * 4),
                                      {"GenerateTable", 2 * 4 * 64 * 2},
                                      {"GenerateEmbedding", 4 * 32 * 128 * 2},
                                      {"GenerateBias", 32 * 4 * 4 * 2}}) {
    const auto work = Work::Create({.name = "x", .method = method, .tokens = 4}, 1, here);
    ASSERT_TRUE(work.ok()) << work.status();
    EXPECT_EQ((*work)->answer_bytes(), bytes) << method;
    EXPECT_EQ((*work)->request_bytes(), method == std::string("ApplyRotary") ? bytes : 0);
    const auto again = (*work)->Compute(here, 0);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(TensorsOf(**again).size(), (*work)->answer().size());
  }
}

TEST(Work, TheRequestSaysWhatTheShapesDoNot) {
  InProcess here;
  const Entry entry = Parse(kTwo).entries[1];
  const auto work = Work::Create(entry, 1, here);
  ASSERT_TRUE(work.ok()) << work.status();
  const auto& request = static_cast<const v1::GenerateTableRequest&>((*work)->request(0));
  EXPECT_EQ(request.form(), v1::TABLE_FORM_DUPLICATED);
  EXPECT_EQ(request.precision().preset(), v1::PRECISION_PRESET_F32);
  EXPECT_EQ((*work)->rpc().name, "StreamTable");
  EXPECT_EQ((*work)->answer_bytes(), 2 * 64 * 64 * 4);
}

TEST(Work, RefusesBeforeAnyCallIsMade) {
  InProcess here;
  const auto refusal = [&](const Entry& entry) { return std::string(Work::Create(entry, 1, here).status().message()); };
  EXPECT_THAT(refusal({.name = "a", .method = "Rotate"}), HasSubstr("a.method: is Rotate"));
  EXPECT_THAT(refusal({.name = "a", .dtype = "fp8"}), HasSubstr("dtype"));
  EXPECT_THAT(refusal({.name = "a", .dtype = "fp64"}), HasSubstr("dtype"));
  EXPECT_THAT(refusal({.name = "a", .head_dim = 7}), HasSubstr("rotary_dim"));
  EXPECT_THAT(refusal({.name = "a", .request_json = R"({"layuot": 1})"}), HasSubstr("layuot"));
  EXPECT_THAT(refusal({.name = "a", .config_json = "{}"}), HasSubstr("a."));
  EXPECT_THAT(refusal({.name = "a", .method = "GenerateEmbedding", .transport = Transport::kStream}),
              HasSubstr("GenerateEmbedding has none"));
}

}  // namespace
}  // namespace posenc::load::mix_test
