// Diagnoses of frequencies: given alone, and measured from few tokens.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/diagnose/diagnose_case.h"

namespace posenc::diagnose::diagnose_frequencies_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RotarySettings Plain(int64_t width) { return Rope({.rope_type = "default"}, width, Pairing::kHalfSplit); }

std::string Ask(const Made& made, const RotarySettings& wanted) {
  WorkPool pool(1);
  const auto diagnosis = Diagnose(made.evidence, AskFor(wanted), 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return diagnosis->verdict.sentence;
}

std::vector<double> FrequenciesAt(const RotarySettings& settings, int64_t length) {
  return (*Rotary::Create(settings, Frequencies::kFloat32, {})->Plan(length))->inv_freq;
}

Diagnosis AskFrequencies(const std::vector<double>& inv_freq, const RotarySettings& wanted,
                         std::optional<double> tolerance_ulp = std::nullopt) {
  Asked asked = AskFor(wanted);
  asked.tolerance_ulp = tolerance_ulp;
  auto diagnosis = posenc::diagnose::DiagnoseFrequencies(DType::kFP32, inv_freq, asked, 9, {});
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

RotarySettings Dynamic(double longest, RopeParameters p = {.rope_theta = 1e4, .factor = 2}, int64_t width = 64) {
  RotarySettings dynamic;
  p.rope_type = "dynamic";
  dynamic.frequencies = std::move(p);
  dynamic.rotary_dim = width;
  dynamic.input_pairing = Pairing::kHalfSplit;
  dynamic.max_position_embeddings = longest;
  return Completed(dynamic);
}

// A length has one number, as a base has. Powers in another order are off by an ulp or two.
TEST(DiagnoseFrequencies, ALengthIsExpectedRatherThanABase) {
  const RotarySettings dynamic = Dynamic(2048);
  const double base = 1e4 * std::pow(2 * 2049 / 2048. - 1, 64 / 62.);
  std::vector<double> inv_freq(32);
  for (int k = 0; k < 32; ++k) {
    inv_freq[k] = 1 / std::pow(static_cast<float>(base), static_cast<float>(2 * k) / 64);
  }
  for (const std::optional<double> tolerance : {std::optional<double>(), std::optional<double>(4)}) {
    const Verdict verdict = AskFrequencies(inv_freq, dynamic, tolerance).verdict;
    EXPECT_EQ(verdict.kind, VerdictKind::kMatches);
    EXPECT_THAT(verdict.sentence, HasSubstr("for length 2049"));
  }
}

TEST(DiagnoseFrequencies, AToleranceIsOfRoundedFrequencies) {
  std::vector<double> inv_freq = FrequenciesAt(Plain(8), 0);
  for (double& one : inv_freq) one = std::nextafter(static_cast<float>(one), 0.0F);
  EXPECT_EQ(AskFrequencies(inv_freq, Plain(8), 1).verdict.kind, VerdictKind::kMatches);
  EXPECT_NE(AskFrequencies(inv_freq, Plain(8), 0).verdict.kind, VerdictKind::kMatches);
}

TEST(DiagnoseFrequencies, AFrequencyBeyondItsTypeIsNearNothing) {
  const RotarySettings large = Rope({.rope_type = "default", .rope_theta = 1e-60}, 8, Pairing::kHalfSplit);
  for (const double tolerance : {0.0, 1.0, 1e6}) {
    const Verdict verdict = AskFrequencies({1, 1e15F, 1e30F, -7}, large, tolerance).verdict;
    ASSERT_EQ(verdict.faults.size(), 1u) << verdict.sentence;
    EXPECT_TRUE(verdict.faults[0].described) << verdict.sentence;
  }
  const RotarySettings small = Rope({.rope_type = "default", .rope_theta = 1e300}, 8, Pairing::kHalfSplit);
  for (const std::optional<double> tolerance : {std::optional<double>(), std::optional<double>(0)}) {
    EXPECT_EQ(AskFrequencies({1, 0, 0, 0}, small, tolerance).verdict.kind, VerdictKind::kMatches);
  }
}

const std::string kUnclear = "the frequencies may be those of a length near [0-9]+, or of another base";

// From lengths of about 200,000 on, most bases have a length that gives them within the bound.
TEST(DiagnoseFrequencies, ARoundBaseIsNotALength) {
  const struct {
    double longest, expected, applied;
  } cases[] = {{2048, 1e4, 5e6}, {2048, 1e4, 1e7},    {4096, 1e4, 8e6},
               {4096, 1e6, 1e8}, {32768, 1e4, 1.5e5}, {131072, 1e6, 8e6}};
  for (const int64_t width : {64, 128}) {
    for (const auto& one : cases) {
      const RotarySettings wanted = Dynamic(one.longest, {.rope_theta = one.expected, .factor = 2}, width);
      const RotarySettings applied =
          Rope({.rope_type = "default", .rope_theta = one.applied}, width, Pairing::kHalfSplit);
      EXPECT_THAT(AskFrequencies(FrequenciesAt(applied, 0), wanted).verdict.sentence,
                  HasSubstr(fmt::format("rope_theta {:.0f} ", one.applied)))
          << width;
    }
  }
}

TEST(DiagnoseFrequencies, ALengthThatDoesNotShowIsNotExpected) {
  for (const int64_t length : {3'000'000, 15'000'000}) {
    const Verdict verdict = AskFrequencies(FrequenciesAt(Dynamic(4096), length), Dynamic(4096)).verdict;
    EXPECT_EQ(verdict.kind, VerdictKind::kUnknown) << length;
    EXPECT_THAT(verdict.sentence, ::testing::MatchesRegex(kUnclear)) << length;
  }
  // The base 80000 is round, but so is the length 4096: (3 * 2 - 2)^(6/4) = 8.
  const RotarySettings narrow = Dynamic(2048, {.rope_theta = 1e4, .factor = 3}, 6);
  EXPECT_THAT(AskFrequencies(FrequenciesAt(narrow, 4096), narrow).verdict.sentence, ::testing::MatchesRegex(kUnclear));
}

TEST(DiagnoseFrequencies, NumbersInASentenceDiffer) {
  const auto sentence = [](double theta, double divisor) {
    std::vector<double> inv_freq;
    for (int k = 0; k < 32; ++k) inv_freq.push_back(std::pow(theta, -k / 32.0) / divisor);
    return AskFrequencies(inv_freq, Plain(64)).verdict.sentence;
  };
  EXPECT_THAT(sentence(10000.03, 1), HasSubstr("rope_theta 10000.03 was applied, but the model specifies 10000,"));
  EXPECT_THAT(sentence(10000, 1.000003), HasSubstr("rope_theta 10000, divided by 1.000003, were applied"));
  EXPECT_EQ(Short(0.1, 0.1), "0.1");
  EXPECT_EQ(Short(10000, 10000.031), "10000");
  EXPECT_EQ(Short(10000.031, 10000), "10000.03");
}

TEST(DiagnoseFrequencies, ANumberIsFittedToFrequenciesAlone) {
  const auto with = [](RopeParameters p, const auto& change) { return change(p), p; };
  const RopeParameters llama3{.rope_type = "llama3",
                              .rope_theta = 5e5,
                              .factor = 8,
                              .original_max_position_embeddings = 8192,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4};
  const RopeParameters yarn{
      .rope_type = "yarn", .rope_theta = 1e4, .factor = 16, .original_max_position_embeddings = 4096};
  const auto verdict = [](const RopeParameters& wanted, const RopeParameters& applied, int64_t width) {
    return AskFrequencies(FrequenciesAt(Rope(applied, width, Pairing::kHalfSplit), 0),
                          Rope(wanted, width, Pairing::kHalfSplit))
        .verdict;
  };
  const auto factor = [](double value) { return [value](RopeParameters& p) { p.factor = value; }; };
  const auto high = [](RopeParameters& p) { p.high_freq_factor = 8; };
  const auto same = [](RopeParameters& p) { p.low_freq_factor = p.high_freq_factor; };
  EXPECT_THAT(verdict(llama3, with(llama3, factor(32)), 64).sentence,
              HasSubstr("factor 32 was applied, but the model specifies 8, in pairs 15-31"));
  EXPECT_THAT(verdict(llama3, with(llama3, high), 64).sentence, HasSubstr("high_freq_factor 8 was applied"));
  EXPECT_THAT(verdict(yarn, with(yarn, factor(4)), 128).sentence, HasSubstr("factor 4 was applied"));
  // The ramp ends at whole pairs, so many numbers give it.
  const auto fast = [](RopeParameters& p) { p.beta_fast = 64; };
  EXPECT_THAT(verdict(yarn, with(yarn, fast), 128).sentence,
              testing::AllOf(HasSubstr("beta_fast 64 was applied"), HasSubstr("any number from ")));
  // One of four pairs differs: another number of any kind would explain it.
  EXPECT_THAT(verdict(llama3, with(llama3, high), 8).sentence, testing::StartsWith("other frequencies: "));
  for (const int64_t width : {8, 64}) {
    EXPECT_THAT(verdict(llama3, with(llama3, same), width).sentence,
                HasSubstr("low_freq_factor and high_freq_factor are exchanged"));
  }
}

// The ramp of 64 dimensions, truncated, from pair 22.6 down to pair 10.5: transformers' code with the numbers
// exchanged.
TEST(DiagnoseFrequencies, YarnsBetasAreExchanged) {
  const RotarySettings yarn =
      Rope({.rope_type = "yarn", .rope_theta = 1e4, .factor = 16, .original_max_position_embeddings = 4096}, 64,
           Pairing::kHalfSplit);
  RotarySettings exchanged = yarn;
  GivenFrequencies given{{}, 0.1 * std::log(16) + 1, {}};
  for (int k = 0; k < 32; ++k) {
    const double f = std::pow(1e4, -k / 32.0), ramp = std::clamp((k - 22) / (11 - 22.0), 0.0, 1.0);
    given.inv_freq.push_back(f / 16 * ramp + f * (1 - ramp));
  }
  exchanged.frequencies = given;
  const std::string sentence = "beta_fast and beta_slow are exchanged";
  EXPECT_THAT(AskFrequencies(FrequenciesAt(exchanged, 0), yarn).verdict.sentence, HasSubstr(sentence));
  const Made made = Make(exchanged, kF32Precision, DType::kBF16, Stretch(500, 64), Stretch(500, 64), 2, 64);
  EXPECT_THAT(Ask(made, yarn), HasSubstr(sentence));
}

// Two to four tokens lie near a line by chance, so that their scatter does not say how far to round.
TEST(DiagnoseFrequencies, FewTokens) {
  const struct {
    int64_t width, tokens;
    double first;
    RopeParameters applied;
    std::string sentence;
  } cases[] = {
      {64, 3, 0, {.rope_type = "linear", .rope_theta = 1e4, .factor = 16}, "rope_theta 10000, divided by 16, were"},
      {64, 4, 1, {.rope_type = "linear", .rope_theta = 1e4, .factor = 16}, "rope_theta 10000, divided by 16, were"},
      {16, 2, 0, {.rope_type = "linear", .rope_theta = 1e4, .factor = 8}, "rope_theta 10000, divided by 8, were"},
      {64, 3, 1000, {.rope_type = "default", .rope_theta = 2.5e5}, "rope_theta 250000 was applied"},
      {64, 4, 1000, {.rope_type = "default", .rope_theta = 1.6e5}, "rope_theta 160000 was applied"}};
  for (const auto& one : cases) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      const Tokens tokens = Stretch(one.first, one.tokens);
      const Made made = Make(Rope(one.applied, one.width, Pairing::kHalfSplit), kF32Precision, DType::kFP32, tokens,
                             tokens, 2, one.width, Direction::kForward, 0, seed);
      EXPECT_THAT(Ask(made, Plain(one.width)), HasSubstr(one.sentence)) << one.tokens << " tokens, seed " << seed;
    }
  }
}

TEST(DiagnoseFrequencies, AMissingScalingIsNamedOnce) {
  const RotarySettings wanted =
      Rope({.rope_type = "ntk_alpha", .rope_theta = 1e4, .alpha = 8}, 64, Pairing::kHalfSplit);
  const Tokens tokens = Stretch(3000, 64);
  const Made made = Make(Plain(64), kF32Precision, DType::kBF16, tokens, tokens, 4, 64);
  EXPECT_THAT(Ask(made, wanted), HasSubstr("the ntk_alpha scaling is missing"));
  EXPECT_THAT(Ask(made, wanted), Not(HasSubstr("with the same bytes")));
}

TEST(DiagnoseFrequencies, FrequenciesOfALengthThatNobodyStated) {
  const RotarySettings dynamic = Dynamic(4096);
  const std::string all = "32 of 32 frequencies are equal, all within 1e-06 of each frequency, for ";
  Diagnosis diagnosis = AskFrequencies(FrequenciesAt(dynamic, 100), dynamic);
  EXPECT_EQ(diagnosis.verdict.sentence, all + "lengths up to 4096");
  EXPECT_EQ(diagnosis.explanations[0].sentence, "the model's encoding of lengths up to 4096 was applied");
  EXPECT_EQ(AskFrequencies(FrequenciesAt(dynamic, 10000), dynamic).verdict.sentence, all + "length 10000");
  RopeParameters longrope{
      .rope_type = "longrope", .factor = 32, .original_max_position_embeddings = 4096, .attention_factor = 1};
  for (int n = 0; n < 32; ++n) {
    longrope.short_factor.push_back(1 + 0.01 * n);
    longrope.long_factor.push_back(2 + 0.1 * n);
  }
  const RotarySettings phi = Rope(longrope, 64, Pairing::kHalfSplit);
  EXPECT_EQ(AskFrequencies(FrequenciesAt(phi, 4096), phi).verdict.sentence, all + "lengths up to 4096");
  EXPECT_EQ(AskFrequencies(FrequenciesAt(phi, 4097), phi).verdict.sentence, all + "lengths above 4096");
  // Another base is no length, and it is named without the scaling, which a short sequence does not show.
  const RotarySettings other = Rope({.rope_type = "default", .rope_theta = 5e5}, 64, Pairing::kHalfSplit);
  diagnosis = AskFrequencies(FrequenciesAt(other, 0), dynamic);
  EXPECT_EQ(diagnosis.verdict.sentence,
            "rope_theta 500000 was applied, but the model specifies 10000, in pairs 1-31; the rest matches");
}

TEST(DiagnoseFrequencies, TheSameFrequenciesAreListedOnce) {
  const Diagnosis diagnosis = AskFrequencies(FrequenciesAt(Plain(64), 0), Plain(64));
  for (const Explanation& one : diagnosis.explanations) {
    EXPECT_THAT(one.sentence, Not(HasSubstr("rope_theta 10000 was applied, but")));
    EXPECT_EQ(one.proof.comparison.share() == 1, one.candidate.departures.empty());
  }
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_frequencies_test
