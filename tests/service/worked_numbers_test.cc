// Worked numbers from papers, model files and users' reports, each with its source.
#include <gtest/gtest.h>

#include <functional>

#include "posenc/methods/bias/bias_methods.h"
#include "posenc/methods/embedding/encoding.h"
#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::worked_numbers_test {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

RotaryPlan PlanOf(RopeParameters parameters, int64_t rotary_dim, int64_t seq_len = 1) {
  const auto rotary = Rotary::Create(
      {.frequencies = std::move(parameters), .rotary_dim = rotary_dim, .input_pairing = Pairing::kHalfSplit},
      Frequencies::kExact, {});
  return **rotary->Plan(seq_len);
}

ModelLayers LayerOf(const std::string& config) {
  return *SelectLayer({.config_json = golden::ReadText("configs/" + config)}, {});
}

// RoFormer's rotation of four-element rows at positions 0 .. 4, theta 10000, interleaved.
TEST(WorkedNumbers, FourElementRotation) {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("default");
  settings->set_head_dim(4);
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->set_offset(0);
  request.set_layout(v1::LAYOUT_THD);
  *request.mutable_q()->mutable_tensor() =
      MakeTensor(DType::kFP32, {5, 1, 4}, {1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, -1, 1, -1, .5, .5, .5, .5});
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_THAT(ValuesOf(response->q()), Pointwise(DoubleNear(6e-7), {1.0,       0.0,      1.0,      0.0,       //
                                                                    -.841471,  .540302,  -.010000, .999950,   //
                                                                    -1.325444, .493151,  .979801,  1.019799,  //
                                                                    -.848872,  1.131113, 1.029546, -.969555,  //
                                                                    .051579,   -.705223, .479605,  .519595}));
}

// DeepSeek's magnitudes at factor 40: transformers takes mscale only when mscale_all_dim is non-zero too.
TEST(WorkedNumbers, DeepseekMagnitudes) {
  RopeParameters p{.rope_type = "yarn",
                   .factor = 40.0,
                   .original_max_position_embeddings = 4096.0,
                   .mscale = 0.707,
                   .mscale_all_dim = 0.0};
  RotaryPlan plan = PlanOf(p, 64);
  EXPECT_NEAR(plan.attention_scaling, 1.36889, 5e-6);
  EXPECT_EQ(plan.softmax_scale_factor, 1);
  p.mscale_all_dim = 0.707;
  plan = PlanOf(p, 64);
  EXPECT_EQ(plan.attention_scaling, 1);
  EXPECT_NEAR(std::sqrt(plan.softmax_scale_factor), 1.26080, 5e-6);
}

// gpt-oss disables the rounding of yarn's ramp, which changes a frequency by up to 76 %.
TEST(WorkedNumbers, GptOssWithoutTruncation) {
  RotarySettings settings = *LayerOf("gpt-oss-20b.json").rotary;
  const auto plan = [&settings] { return **Rotary::Create(settings, Frequencies::kExact, {})->Plan(1); };
  const RotaryPlan smooth = plan();
  std::get<RopeParameters>(settings.frequencies).truncate = true;
  const RotaryPlan truncated = plan();
  double largest = 0;
  for (size_t i = 0; i < smooth.inv_freq.size(); ++i) {
    largest = std::max(largest, std::abs(truncated.inv_freq[i] / smooth.inv_freq[i] - 1));
  }
  EXPECT_NEAR(largest, 0.76, 0.005);
}

// Phi-3 switches from short to long factors above L0; at exactly L0 the short list holds.
TEST(WorkedNumbers, LongropeSwitchesAboveTheOriginalLength) {
  const auto rotary = Rotary::Create(*LayerOf("phi-3-mini-128k-instruct.json").rotary, Frequencies::kExact, {});
  ASSERT_THAT(rotary, IsOk());
  EXPECT_EQ((*rotary->Plan(4096))->branch, "short");
  EXPECT_EQ((*rotary->Plan(4097))->branch, "long");
  EXPECT_NEAR((*rotary->Plan(1))->attention_scaling, std::sqrt(1 + std::log(32) / std::log(4096)), 1e-15);
}

// Llama 3.1 keeps the frequency of a wavelength below 8192/4 and divides it by 8 above 8192.
TEST(WorkedNumbers, Llama3KeepsShortWavesAndDividesLongOnes) {
  const RotaryPlan scaled = **Rotary::Create(*LayerOf("llama-3.1-8b.json").rotary, Frequencies::kExact, {})->Plan(1);
  const RotaryPlan plain = PlanOf({.rope_type = "default", .rope_theta = 5e5}, 128);
  size_t kept = 0, divided = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * M_PI / plain.inv_freq[i];
    kept += wavelength < 2048 && scaled.inv_freq[i] == plain.inv_freq[i];
    divided += wavelength > 8192 && scaled.inv_freq[i] == plain.inv_freq[i] / 8;
  }
  EXPECT_EQ(kept, 29u);
  EXPECT_EQ(divided, 29u);
}

std::vector<double> Spacing(SinusoidalConvention convention, int64_t dim) {
  SinusoidalSettings settings{.convention = convention, .dim = dim};
  if (convention == SinusoidalConvention::kFairseq) settings.padding_idx = 0;
  EXPECT_THAT(Complete(settings, {}), IsOk());
  return SinusoidalFrequencies(Frequencies::kExact, settings);
}

TEST(WorkedNumbers, SinusoidalSpacings) {
  EXPECT_THAT(Spacing(SinusoidalConvention::kInterleaved, 8), Pointwise(DoubleNear(1e-15), {1.0, .1, .01, .001}));
  EXPECT_THAT(Spacing(SinusoidalConvention::kHalves, 8), Pointwise(DoubleNear(1e-15), {1.0, .1, .01, .001}));
  for (auto convention : {SinusoidalConvention::kTensor2Tensor, SinusoidalConvention::kFairseq}) {
    EXPECT_THAT(Spacing(convention, 8), Pointwise(DoubleNear(5e-5), {1.0, .0464, .00215, .0001}));
  }
}

// p_7 . p_3 at D = 8 is the sum of cos(4 w_k).
TEST(WorkedNumbers, SinusoidalDotProduct) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED);
  request.mutable_sinusoidal()->set_dim(8);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {2}, {7, 3});
  request.set_dtype(v1::DATA_TYPE_FP64);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const std::vector<double> p = ValuesOf(response->embedding());
  double dot = 0;
  for (int e = 0; e < 8; ++e) dot += p[e] * p[8 + e];
  EXPECT_NEAR(dot, 2.2666095, 5e-8);
}

// ALiBi for head counts that are no power of two.
TEST(WorkedNumbers, AlibiSlopes) {
  const auto slopes = [](int64_t heads) {
    AlibiSettings settings{.num_heads = heads, .slopes = AlibiSlopeRule::kPowerOfTwo};
    EXPECT_THAT(Complete(settings, {}), IsOk());
    return AlibiSlopes(Frequencies::kExact, settings).values;
  };
  EXPECT_EQ(slopes(3), (std::vector<double>{.0625, .00390625, .25}));
  EXPECT_EQ(slopes(6), (std::vector<double>{.25, .0625, .015625, .00390625, .5, .125}));
  const std::vector<double> twelve = slopes(12);
  EXPECT_THAT(std::vector<double>(twelve.begin() + 8, twelve.end()),
              Pointwise(DoubleNear(5e-7), {.707107, .353553, .176777, .088388}));
}

// At slope 1/2 adjacent biases collide when the type's spacing exceeds 1/2: bfloat16 at key 257, float16 at 2049.
TEST(WorkedNumbers, NarrowBiasesCollide) {
  for (const auto& [dtype, key] : {std::pair{DType::kBF16, 257}, {DType::kFP16, 2049}}) {
    v1::GenerateBiasRequest request;
    v1::Alibi* alibi = request.mutable_method()->mutable_alibi();
    alibi->set_num_heads(1);
    *alibi->mutable_given() = MakeTensor(DType::kFP32, {1}, {0.5});
    alibi->set_form(v1::ALIBI_FORM_BLOOM);
    request.mutable_geometry()->set_query_length(3000);
    request.mutable_geometry()->set_key_length(3000);
    request.set_form(v1::BIAS_FORM_COMPACT);
    request.set_dtype(Wire(dtype));
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const std::vector<double> bias = ValuesOf(response->bias());
    int first = 1;
    while (bias[first] != bias[first - 1]) ++first;
    EXPECT_EQ(first, key);
  }
}

// OLMo-3.1's explicit attention_factor is used unchanged. 0.1 ln 8 + 1 = 1.2079.
TEST(WorkedNumbers, OlmosAttentionFactor) {
  ModelSource source{.config_json = golden::ReadText("configs/olmo-3.1-32b-instruct.json"), .layer = "full_attention"};
  const auto layers = SelectLayer(source, {});
  ASSERT_THAT(layers, IsOk());
  EXPECT_NEAR((*Rotary::Create(*layers->rotary, Frequencies::kExact, {})->Plan(1))->attention_scaling, 1.2079, 5e-5);
}

}  // namespace
}  // namespace posenc::worked_numbers_test
