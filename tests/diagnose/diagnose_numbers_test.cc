// Ports with one wrong number of the settings: the verdict names it, and says if it is one of many.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/diagnose/diagnose_port.h"

namespace posenc::diagnose::diagnose_numbers_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 64, kLength = 8192;
constexpr double kFirst = 3000;

RotarySettings Settings(const RopeParameters& p, std::optional<double> longest = std::nullopt) {
  RotarySettings settings;
  settings.frequencies = p;
  settings.rotary_dim = kWidth;
  settings.input_pairing = Pairing::kHalfSplit;
  settings.max_position_embeddings = longest;
  return Completed(settings);
}

std::vector<double> OfBase(double base) {
  return PaperFrequencies({.rope_type = "default", .rope_theta = base}, kWidth);
}

// arXiv:2309.00071, section 3.3, as in transformers.
std::vector<double> Dynamic(double factor, double longest, double length) {
  const double width = kWidth;
  return OfBase(1e4 * std::pow(factor * length / longest - (factor - 1), width / (width - 2)));
}

Verdict Ask(const RotarySettings& wanted, const std::vector<double>& applied, DType dtype, double attention = 1,
            double first = kFirst, int64_t length = 64) {
  Port port{.batch = 1, .length = length, .dtype = dtype};
  port.position = [first](int64_t, int64_t s) { return first + static_cast<double>(s); };
  Evidence evidence = Rotated(port, 1, [&](const PortCell& cell) {
    return Treatment{.inv_freq = applied, .position = port.position(cell.b, cell.s), .scale = attention};
  });
  if (wanted.max_position_embeddings) evidence.tokens.seq_len = {kLength};
  Asked asked = AskFor(wanted);
  asked.offsets = {0, 0};
  WorkPool pool(1);
  auto diagnosis = Diagnose(evidence, asked, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return diagnosis->verdict;
}

// Expects a verdict that names one fault, in these words.
void ExpectNumber(const Verdict& verdict, const std::string& words) {
  EXPECT_EQ(verdict.kind, VerdictKind::kDiffers) << verdict.sentence;
  ASSERT_EQ(verdict.faults.size(), 1u) << verdict.sentence;
  EXPECT_EQ(verdict.faults[0].sentence, words) << verdict.sentence;
}

TEST(DiagnoseNumbers, NumbersOfDynamicRatherThanABase) {
  const RotarySettings wanted = Settings({.rope_type = "dynamic", .rope_theta = 1e4, .factor = 2}, 2048);
  for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
    for (const double length : {2049., 3000., 4096., 8190., 16384.}) {
      ExpectNumber(Ask(wanted, Dynamic(2, 2048, length), dtype),
                   "frequencies are those of length " + Short(length) + ", not 8192");
    }
    ExpectNumber(Ask(wanted, Dynamic(4, 2048, kLength), dtype), "factor 4 was applied, but the model specifies 2");
    ExpectNumber(Ask(wanted, OfBase(3e5), dtype), "unscaled frequencies of rope_theta 300000 were applied");
    std::vector<double> linear = OfBase(1e4);
    for (double& f : linear) f /= 2;
    ExpectNumber(Ask(wanted, linear, dtype), "linear scaling was applied instead of dynamic");
  }
}

TEST(DiagnoseNumbers, OtherNumbersThatGiveTheSameBytesAreAlternatives) {
  const RotarySettings wanted = Settings({.rope_type = "dynamic", .rope_theta = 1e4, .factor = 2}, 2048);
  EXPECT_THAT(Ask(wanted, Dynamic(2, 4096, kLength), DType::kBF16).sentence,
              HasSubstr("max_position_embeddings 4096 was applied, but the model specifies 2048"));
}

TEST(DiagnoseNumbers, AlphaRatherThanABase) {
  const RotarySettings wanted = Settings({.rope_type = "ntk_alpha", .rope_theta = 1e4, .alpha = 8});
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    for (const double alpha : {4., 1000.}) {
      ExpectNumber(Ask(wanted, OfBase(1e4 * std::pow(alpha, 64 / 62.)), dtype),
                   "alpha " + Short(alpha) + " was applied, but the model specifies 8");
    }
    ExpectNumber(Ask(wanted, OfBase(8e4), dtype), "unscaled frequencies of rope_theta 80000 were applied");
  }
}

// Yarn's ramp begins and ends at whole pairs, so a range of numbers has the same frequencies.
TEST(DiagnoseNumbers, ANumberThatIsOneOfMany) {
  const RopeParameters yarn{
      .rope_type = "yarn", .rope_theta = 1e4, .factor = 16, .original_max_position_embeddings = 4096};
  const double attention = 0.1 * std::log(16.) + 1;
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    RopeParameters other = yarn;
    for (const double length : {65536., 262144.}) {
      other.original_max_position_embeddings = length;
      const Verdict verdict = Ask(Settings(yarn), PaperFrequencies(other, kWidth), dtype, attention);
      ASSERT_EQ(verdict.faults.size(), 1u);
      EXPECT_THAT(verdict.faults[0].sentence,
                  ::testing::MatchesRegex("original_max_position_embeddings " + Short(length) +
                                          " was applied, but the model specifies 4096 "
                                          ".any number from [0-9]+ to [0-9]+ has the same frequencies."));
    }
    other = yarn;
    other.beta_fast = 48;
    EXPECT_THAT(Ask(Settings(yarn), PaperFrequencies(other, kWidth), dtype, attention).sentence,
                ::testing::ContainsRegex("beta_fast [0-9.]+ was applied, but the model specifies 32 "
                                         ".any number from [0-9.]+ to [0-9.]+ has the same frequencies."));
  }
}

TEST(DiagnoseNumbers, APowerOfTwoRatherThanADecimalNumber) {
  const RopeParameters wanted{.rope_type = "llama3",
                              .rope_theta = 5e5,
                              .factor = 8,
                              .original_max_position_embeddings = 8192,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4};
  RopeParameters other = wanted;
  other.original_max_position_embeddings = 12288;
  ExpectNumber(Ask(Settings(wanted), PaperFrequencies(other, kWidth), DType::kBF16),
               "original_max_position_embeddings 12288 was applied, but the model specifies 8192");
}

// Float32 phases err alike at neighbouring tokens, so the factor that is measured there is not quite 8.
TEST(DiagnoseNumbers, AFactorFarFromPositionZero) {
  const RotarySettings plain = Settings({.rope_type = "default", .rope_theta = 1e4});
  const RotarySettings quarter = Settings({.rope_type = "linear", .rope_theta = 1e4, .factor = 4});
  std::vector<double> eighth = OfBase(1e4);
  for (double& f : eighth) f /= 8;
  for (const double first : {1000., 3000., 1e5}) {
    for (const int64_t length : {8, 32, 64}) {
      SCOPED_TRACE(fmt::format("{} tokens from {} on", length, first));
      ExpectNumber(Ask(quarter, eighth, DType::kFP32, 1, first, length),
                   "factor 8 was applied, but the model specifies 4");
      ExpectNumber(Ask(plain, eighth, DType::kFP32, 1, first, length),
                   "frequencies of rope_theta 10000, divided by 8, were applied");
    }
  }
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_numbers_test
