// Positions of Omni models: spans that are not what grids and audio lengths stand for are refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/call.h"

namespace posenc::positions_omni_test {
namespace {

using testing::HasSubstr;

// Ids of tokens.
constexpr int64_t kText = 9, kVision = 1, kAudio = 2, kVideoToken = 3, kAudioToken = 4, kImageToken = 5;

v1::Tensor Integers(const std::vector<int64_t>& values, std::vector<int64_t> shape) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_INT64);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return tensor;
}

class OmniPositions : public testing::TestWithParam<const char*> {
 protected:
  // A request with these tokens, and no grids.
  static v1::PositionsRequest Request(const std::vector<int64_t>& ids) {
    v1::PositionsRequest request;
    request.mutable_model()->set_config_json(std::string(R"({"model_type": ")") + GetParam() + R"(",
        "vision_start_token_id": 1, "audio_start_token_id": 2, "video_token_id": 3, "audio_token_id": 4,
        "image_token_id": 5})");
    *request.mutable_tokens()->mutable_input_ids() = Integers(ids, {1, static_cast<int64_t>(ids.size())});
    return request;
  }
  // `count` tokens of one item after their start token, and text around.
  static v1::PositionsRequest Item(int64_t start, int64_t token, int64_t count) {
    std::vector<int64_t> ids = {kText, start};
    ids.insert(ids.end(), count, token);
    ids.insert(ids.end(), {kText, kText, kText, kText, kText});
    return Request(ids);
  }
  static v1::PositionsRequest Image(int64_t count) {
    v1::PositionsRequest request = Item(kVision, kImageToken, count);
    *request.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 4, 4}, {1, 3});
    return request;
  }
  static v1::PositionsRequest Video(int64_t count) {
    v1::PositionsRequest request = Item(kVision, kVideoToken, count);
    AddVideo(&request);
    return request;
  }
  // 40 feature frames are 10 tokens of Qwen2.5-Omni, and 5 of Qwen3-Omni.
  static v1::PositionsRequest Audio(int64_t count) {
    v1::PositionsRequest request = Item(kAudio, kAudioToken, count);
    *request.mutable_tokens()->mutable_audio_seqlens() = Integers({40}, {1});
    return request;
  }
  static v1::PositionsRequest VideoAndAudio(int64_t frames, int64_t sounds) {
    std::vector<int64_t> ids = {kText, kVision, kAudio};
    ids.insert(ids.end(), frames, kVideoToken);
    ids.insert(ids.end(), sounds, kAudioToken);
    ids.insert(ids.end(), {kText, kText, kText, kText});
    v1::PositionsRequest request = Request(ids);
    AddVideo(&request);
    *request.mutable_tokens()->mutable_audio_seqlens() = Integers({40}, {1});
    request.mutable_tokens()->set_use_audio_in_video(true);
    return request;
  }
  static int64_t AudioTokens() { return GetParam()[4] == '3' ? 5 : 10; }

  static void AddVideo(v1::PositionsRequest* request) {
    *request->mutable_tokens()->mutable_video_grid_thw() = Integers({1, 4, 4}, {1, 3});
    *request->mutable_tokens()->mutable_second_per_grid_ts() = Integers({1}, {1});
  }
  static void ExpectAnswered(const v1::PositionsRequest& request) {
    const auto response = Call(request);
    EXPECT_TRUE(response.ok()) << response.status();
  }
  static void ExpectRefused(const v1::PositionsRequest& request, const std::string& field, const std::string& words,
                            const std::string& reason = "MISMATCH") {
    const auto response = Call(request);
    ASSERT_FALSE(response.ok());
    EXPECT_EQ(DetailsOf(response.status()).reason, reason) << response.status();
    EXPECT_EQ(DetailsOf(response.status()).field, field) << response.status();
    EXPECT_THAT(std::string(response.status().message()), HasSubstr(words));
  }
};

TEST_P(OmniPositions, AnImageHasTheTokensOfItsGrid) {
  ExpectAnswered(Image(4));
  for (const int64_t count : {1, 2, 3, 5, 6}) {
    ExpectRefused(Image(count), "tokens.image_grid_thw[0]",
                  "it stands for 4, the span of sequence 0, tokens 2 to " + std::to_string(count + 1) + " has " +
                      std::to_string(count));
  }
}

TEST_P(OmniPositions, AVideoHasTheTokensOfItsGrid) {
  ExpectAnswered(Video(4));
  ExpectRefused(Video(3), "tokens.video_grid_thw[0]", "it stands for 4, the span of sequence 0, tokens 2 to 4 has 3");
  ExpectRefused(Video(5), "tokens.video_grid_thw[0]", "it stands for 4, the span of sequence 0, tokens 2 to 6 has 5");
}

TEST_P(OmniPositions, AnAudioHasTheTokensOfItsLength) {
  for (const bool has_grid : {false, true}) {
    const auto audio = [has_grid](int64_t count) {
      v1::PositionsRequest request = Audio(count);
      if (has_grid) *request.mutable_tokens()->mutable_image_grid_thw() = Integers({}, {0, 3});
      return request;
    };
    ExpectAnswered(audio(AudioTokens()));
    ExpectRefused(audio(7), "tokens.audio_seqlens[0]", "the span of sequence 0, tokens 2 to 8 has 7");
    ExpectRefused(audio(AudioTokens() + 1), "tokens.audio_seqlens[0]",
                  "it stands for " + std::to_string(AudioTokens()) + ", the span");
  }
}

TEST_P(OmniPositions, AVideoAndItsAudioHaveBoth) {
  ExpectAnswered(VideoAndAudio(4, AudioTokens()));
  ExpectRefused(VideoAndAudio(3, AudioTokens() + 1), "tokens.audio_seqlens[0]",
                "has " + std::to_string(AudioTokens() + 1));
  ExpectRefused(VideoAndAudio(3, AudioTokens()), "tokens.video_grid_thw[0]", "has 3");
}

TEST_P(OmniPositions, TokensOfItemsAreNotText) {
  v1::PositionsRequest request = Request({kText, kVision, kImageToken, kText, kImageToken, kText});
  *request.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 2, 2}, {1, 3});
  ExpectRefused(request, "tokens.input_ids", "the token of sequence 0, tokens 4 to 4");
  v1::PositionsRequest without = Image(4);
  without.mutable_tokens()->clear_image_grid_thw();
  ExpectRefused(without, "tokens.image_grid_thw", "must be given: the token of sequence 0", "MISSING");
}

TEST_P(OmniPositions, AudioWithoutGridsHasASpan) {
  const auto response = Call(Audio(AudioTokens()));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->spans_size(), 3);
  EXPECT_EQ(response->spans(1).kind(), v1::SPAN_KIND_AUDIO);
  EXPECT_EQ(response->spans(1).begin(), 2);
  EXPECT_EQ(response->spans(1).end(), 2 + AudioTokens());
  EXPECT_EQ(response->spans(1).audio(), 0);
  v1::PositionsRequest more = Audio(AudioTokens());
  *more.mutable_tokens()->mutable_audio_seqlens() = Integers({40, 40}, {2});
  ExpectRefused(more, "tokens.audio_seqlens", "is 2 values; must have one for each audio: the tokens have 1");
}

INSTANTIATE_TEST_SUITE_P(Types, OmniPositions,
                         testing::Values("qwen2_5_omni_thinker", "qwen2_5_omni_talker", "qwen3_omni_moe_thinker",
                                         "qwen3_omni_moe_talker"),
                         [](const auto& type) { return std::string(type.param); });

}  // namespace
}  // namespace posenc::positions_omni_test
