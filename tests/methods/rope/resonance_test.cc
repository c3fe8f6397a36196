// Resonance RoPE: wavelengths are whole numbers, for every kind of scaling.
#include <cmath>
#include <numbers>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/methods/rope/rope.h"
#include "tests/reference/mpfr_number.h"
#include "tests/service/call.h"

namespace posenc::resonance_test {
namespace {

using Exact = reference::Number<400>;

v1::RotarySettings Settings(const std::string& rope_type, int64_t rotary_dim) {
  v1::RotarySettings settings;
  settings.set_rotary_dim(rotary_dim);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  v1::RopeParameters& p = *settings.mutable_rope_parameters();
  p.set_rope_type(rope_type);
  if (rope_type == "yarn") {
    p.set_factor(4);
    p.set_original_max_position_embeddings(4096);
  }
  return settings;
}

std::vector<double> FrequenciesOf(const v1::RotarySettings& settings) {
  v1::ExplainRequest request;
  *request.mutable_rotary() = settings;
  const auto answer = Call(request);
  EXPECT_THAT(answer, IsOk());
  if (!answer.ok()) return {};
  const auto& list = answer->layers(0).info().plan().frequencies(0).inv_freq();
  return {list.begin(), list.end()};
}

// The first wavelengths of a head of 128: 6.28, 7.26, 8.38, 9.68, 11.17 without resonance.
TEST(Resonance, RoundsThePublishedWavelengths) {
  v1::RotarySettings settings = Settings("default", 128);
  settings.mutable_rope_parameters()->set_resonance(true);
  const std::vector<double> inv_freq = FrequenciesOf(settings);
  ASSERT_EQ(inv_freq.size(), 64u);
  const double wavelengths[] = {6, 7, 8, 10, 11};
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(inv_freq[i], 2 * std::numbers::pi / wavelengths[i]) << i;
}

TEST(Resonance, EqualsItsDefinition) {
  for (const char* rope_type : {"default", "yarn", "constant"}) {
    v1::RotarySettings settings = Settings(rope_type, 96);
    settings.mutable_rope_parameters()->set_negate_angle(true);
    const std::vector<double> plain = FrequenciesOf(settings);
    settings.mutable_rope_parameters()->set_resonance(true);
    const std::vector<double> resonant = FrequenciesOf(settings);
    ASSERT_EQ(resonant.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      const Exact turn = Exact(2.0) * Exact::Pi();
      const double wavelength = std::nearbyint((turn / Exact(-plain[i])).ToDouble());
      EXPECT_EQ(resonant[i], -(turn / Exact(wavelength)).ToDouble()) << rope_type << " " << i;
    }
  }
}

TEST(Resonance, RepeatsAfterAWavelength) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary()->mutable_settings() = Settings("default", 2);
  request.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->set_resonance(true);
  request.mutable_positions()->set_offset(0);
  request.set_count(6 * 1000 + 6);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  request.set_dtype(v1::DATA_TYPE_FP64);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> cos = ValuesOf(answer->cos());
  for (size_t position = 0; position < 6; ++position) EXPECT_NEAR(cos[position + 6000], cos[position], 1e-12);
}

TEST(Resonance, KeepsZeroAndRefusesShortWavelengths) {
  EXPECT_EQ(ResonantFrequency(0), 0);
  EXPECT_EQ(ResonantFrequency(12.6), std::nullopt);
  EXPECT_DOUBLE_EQ(*ResonantFrequency(12.5), 2 * std::numbers::pi);
  EXPECT_EQ(*ResonantFrequency(0x1p-1074), 0x1p-1074);
  v1::ExplainRequest request;
  *request.mutable_rotary() = Settings("pixel", 8);
  request.mutable_rotary()->mutable_rope_parameters()->set_resonance(true);
  EXPECT_EQ(DetailsOf(Call(request).status()).reason, "OUT_OF_RANGE");
}

TEST(Resonance, IsPartOfThePlan) {
  v1::ExplainRequest request;
  *request.mutable_rotary() = Settings("default", 8);
  const auto plain = Call(request);
  request.mutable_rotary()->mutable_rope_parameters()->set_resonance(true);
  const auto resonant = Call(request);
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(resonant, IsOk());
  const v1::AnswerInfo& info = resonant->layers(0).info();
  EXPECT_TRUE(info.plan().rotary().rope_parameters().resonance());
  EXPECT_NE(info.plan_fingerprint(), plain->layers(0).info().plan_fingerprint());
}

TEST(Resonance, RequiresExactFrequencies) {
  v1::ExplainRequest request;
  *request.mutable_rotary() = Settings("default", 8);
  request.mutable_rotary()->mutable_rope_parameters()->set_resonance(true);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
  const absl::Status status = Call(request).status();
  EXPECT_EQ(DetailsOf(status).reason, "UNSUPPORTED");
  EXPECT_EQ(DetailsOf(status).field, "rotary.rope_parameters.resonance");
}

}  // namespace
}  // namespace posenc::resonance_test
