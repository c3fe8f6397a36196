// Which elements of a head rotate, if the request leaves it to the model; and widths that transformers rounds up.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/service/call.h"

namespace posenc::model_heads_test {
namespace {

using testing::Contains;
using testing::Property;

constexpr char kDeepseek[] = R"({"model_type": "deepseek_v3", "qk_nope_head_dim": 6, "qk_rope_head_dim": 4})";

// Rotates one token with two heads of `width` elements at position 3.
v1::ApplyRotaryRequest Request(const std::string& config_json, int64_t width) {
  v1::ApplyRotaryRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(config_json);
  request.mutable_positions()->set_offset(3);
  request.set_layout(v1::LAYOUT_BSHD);
  std::vector<double> values;
  for (int64_t n = 0; n < 2 * width; ++n) values.push_back(static_cast<double>(n + 1));
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 2, width}, values);
  return request;
}

auto HasNote(const std::string& code, const std::string& field) {
  return Contains(testing::AllOf(Property(&v1::Note::code, code), Property(&v1::Note::field, field)));
}

TEST(ModelHeads, DeepseekRotatesTheLastElementsOfAWholeHead) {
  const auto own = Call(Request(kDeepseek, 10));
  ASSERT_THAT(own, IsOk());
  auto request = Request(kDeepseek, 10);
  request.mutable_q()->set_rotary_offset(6);
  const auto asked = Call(request);
  ASSERT_THAT(asked, IsOk());
  EXPECT_EQ(own->q().data(), asked->q().data());
  EXPECT_EQ(own->info().q_rotary_offset(), 6);
  EXPECT_THAT(own->info().notes(), HasNote("ROTARY_OFFSET", "q.rotary_offset"));
  EXPECT_THAT(asked->info().notes(), testing::Not(HasNote("ROTARY_OFFSET", "q.rotary_offset")));

  // The part alone, as k_pe is.
  const auto part = Call(Request(kDeepseek, 4));
  ASSERT_THAT(part, IsOk());
  EXPECT_EQ(part->info().q_rotary_offset(), 0);
}

TEST(ModelHeads, HeadsOfAnotherWidthAreRefusedUnlessTheRequestPlacesTheRotation) {
  for (const char* file : {kDeepseek, R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 4})",
                           R"({"model_type": "glm", "head_dim": 16, "partial_rotary_factor": 0.25})"}) {
    SCOPED_TRACE(file);
    auto request = Request(file, 12);
    EXPECT_THAT(Call(request), IsInvalid("MISSING", "q.rotary_offset"));
    request.mutable_q()->set_rotates_first(true);
    const auto first = Call(request);
    ASSERT_THAT(first, IsOk());
    const std::vector<double> before = ValuesOf(request.q().tensor()), after = ValuesOf(first->q());
    EXPECT_NE(after[0], before[0]);
    EXPECT_TRUE(std::equal(before.begin() + 4, before.begin() + 12, after.begin() + 4));
    request.mutable_q()->set_rotary_offset(1);
    EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "q.rotary_offset"));
    EXPECT_EQ(DetailsOf(Call(request).status()).other_field, "q.rotates_first");
    request.mutable_q()->set_rotates_first(false);
    EXPECT_THAT(Call(request), IsOk());
  }
}

TEST(ModelHeads, AShareOfAHeadIsItsFirstElements) {
  const auto answer = Call(Request(R"({"model_type": "glm", "head_dim": 16, "partial_rotary_factor": 0.25})", 16));
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->info().q_rotary_offset(), 0);
  EXPECT_EQ(answer->info().rotary_dim(), 4);
}

TEST(ModelHeads, TheAnswerSaysTheDirection) {
  auto request = Request(kDeepseek, 10);
  EXPECT_EQ(Call(request)->info().direction(), v1::DIRECTION_FORWARD);
  request.set_direction(v1::DIRECTION_INVERSE);
  EXPECT_EQ(Call(request)->info().direction(), v1::DIRECTION_INVERSE);
}

constexpr char kNeox[] = R"({"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 8,
                             "rotary_pct": 0.33})";

// transformers 5.23: GPTNeoXRotaryEmbedding's inv_freq, and apply_rotary_pos_emb of 1 .. 64 at position 3, in float32.
TEST(OddWidths, AShareOfAHeadIsRoundedUp) {
  const double inv_freq[] = {1.0,
                             0.41595619916915894,
                             0.17301957309246063,
                             0.07196855545043945,
                             0.029935769736766815,
                             0.01245197094976902,
                             0.005179473198950291,
                             0.002154434332624078,
                             0.0008961503626778722,
                             0.00037275932845659554,
                             0.0001550515735289082};
  const double rotated[] = {-2.6834325790405273,
                            -11.693346977233887,
                            -4.340023517608643,
                            0.6936488151550293,
                            3.544863700866699,
                            5.360910892486572,
                            6.719474792480469,
                            7.877031326293945,
                            8.946198463439941,
                            9.976510047912598,
                            10.989765167236328,
                            -11.738789558410645,
                            6.022097587585449,
                            13.64419937133789,
                            15.508670806884766,
                            16.383953094482422,
                            17.212223052978516,
                            18.106592178344727,
                            19.05130958557129,
                            20.024124145507812,
                            21.01116943359375,
                            22.005115509033203,
                            23.0,
                            24.0};
  auto request = Request(kNeox, 64);
  request.mutable_hints()->set_return_plan(true);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->info().rotary_dim(), 22);
  EXPECT_THAT(answer->info().notes(), HasNote("WIDTH_ROUNDED_UP", "config_json.rotary_pct"));
  const auto& found = answer->info().plan().frequencies(0).inv_freq();
  ASSERT_EQ(found.size(), 11);
  for (int i = 0; i < 11; ++i) EXPECT_NEAR(found[i] / inv_freq[i], 1, 1e-6) << i;
  const std::vector<double> values = ValuesOf(answer->q());
  for (int i = 0; i < 24; ++i) EXPECT_NEAR(values[i], rotated[i], 1e-5) << i;

  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
  const auto as_model = Call(request);
  ASSERT_THAT(as_model, IsOk());
  for (int i = 0; i < 11; ++i) EXPECT_EQ(as_model->info().plan().frequencies(0).inv_freq(i), inv_freq[i]) << i;
}

// transformers' YaRN fails for an odd width, and so does Phi's attention.
TEST(OddWidths, WhereTransformersFailsTheyAreRefused) {
  EXPECT_THAT(Call(Request(R"({"model_type": "gpt_neox", "head_dim": 64, "rotary_pct": 0.33, "rope_scaling": {
                               "type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}})",
                           64)),
              IsInvalid("OUT_OF_RANGE", "rotary.model.config_json.rotary_pct"));
  EXPECT_THAT(Call(Request(R"({"model_type": "phi", "head_dim": 64, "partial_rotary_factor": 0.33})", 64)),
              IsInvalid("OUT_OF_RANGE", "rotary.model.config_json.partial_rotary_factor"));
}

// transformers 5.23: row 3 of MarianSinusoidalPositionalEmbedding(4, 7), in float32.
TEST(OddWidths, MariansLastSineHasNoCosine) {
  const double row[] = {0.14112000167369843, 0.2142321914434433, 0.015537798404693604, 0.0011182778980582952,
                        -0.9899924993515015, 0.9767827391624451, 0.9998793005943298};
  v1::GenerateEmbeddingRequest request;
  request.mutable_sinusoidal()->mutable_model()->set_config_json(R"({"model_type": "marian", "d_model": 7})");
  request.mutable_positions()->set_offset(2);
  request.set_count(3);
  request.set_dtype(v1::DATA_TYPE_FP32);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(ShapeOf(answer->embedding()), testing::ElementsAre(3, 7));
  const std::vector<double> values = ValuesOf(answer->embedding());
  for (int i = 0; i < 7; ++i) EXPECT_NEAR(values[7 + i], row[i], 1e-7) << i;
  EXPECT_NEAR(values[4], std::cos(2), 1e-7);
  EXPECT_NEAR(values[18], std::cos(4), 1e-7);
}

}  // namespace
}  // namespace posenc::model_heads_test
