// Frequencies and scalings equal an independent evaluation by MPFR, in all three arithmetics.
#include <gtest/gtest.h>

#include <random>

#include "posenc/methods/rope/methods.h"
#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"
#include "tests/reference/golden.h"
#include "tests/reference/rope_recipe.h"
#include "tests/service/call.h"

namespace posenc::recipe_oracle_test {
namespace {

template <int kTensorDigits, int kPythonDigits, int kResultDigits>
void ExpectEqualTo(const RotarySettings& settings, int64_t rotary_dim, int64_t seq_len, const RotaryPlan& plan) {
  reference::RopeRecipe<reference::Number<kTensorDigits>, reference::Number<kPythonDigits>> recipe{
      std::get<RopeParameters>(settings.frequencies), static_cast<int>(rotary_dim),
      settings.max_position_embeddings.value_or(0), static_cast<double>(seq_len)};
  recipe.Compute();
  // Over the real numbers, dividing frequencies equals dividing positions; posenc divides frequencies there.
  if (kTensorDigits == 300) {
    for (auto& f : recipe.inv_freq) f = f / reference::Number<kTensorDigits>(recipe.position_divisor);
    recipe.position_divisor = 1;
  }
  ASSERT_EQ(plan.inv_freq.size(), recipe.inv_freq.size());
  for (size_t i = 0; i < plan.inv_freq.size(); ++i) {
    ASSERT_EQ(plan.inv_freq[i], recipe.inv_freq[i].template RoundedTo<kResultDigits>()) << "inv_freq[" << i << "]";
  }
  EXPECT_EQ(plan.attention_scaling, recipe.attention_scaling.template RoundedTo<53>());
  EXPECT_EQ(plan.softmax_scale_factor, recipe.softmax_scale_factor.template RoundedTo<53>());
  EXPECT_EQ(plan.position_divisor, recipe.position_divisor.template RoundedTo<53>());
}

// The rotary width that the settings imply.
int64_t WidthOf(const RotarySettings& settings) {
  if (settings.rotary_dim) return *settings.rotary_dim;
  const auto& p = std::get<RopeParameters>(settings.frequencies);
  const double partial = p.rope_type == "proportional" ? 1 : p.partial_rotary_factor.value_or(1);
  return static_cast<int64_t>(static_cast<double>(*settings.head_dim) * partial);
}

void ExpectEqualInAllArithmetics(const RotarySettings& settings, int64_t seq_len) {
  for (Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32}) {
    SCOPED_TRACE(testing::Message() << "arithmetic " << static_cast<int>(arithmetic) << ", seq_len " << seq_len);
    const auto rotary = Rotary::Create(settings, arithmetic, {});
    ASSERT_THAT(rotary, IsOk());
    ASSERT_EQ(rotary->rotary_dim(), WidthOf(settings));
    const auto plan = rotary->Plan(seq_len);
    ASSERT_THAT(plan, IsOk());
    switch (arithmetic) {
      case Frequencies::kExact: ExpectEqualTo<300, 300, 53>(settings, WidthOf(settings), seq_len, **plan); break;
      case Frequencies::kFloat64: ExpectEqualTo<53, 53, 53>(settings, WidthOf(settings), seq_len, **plan); break;
      case Frequencies::kFloat32: ExpectEqualTo<24, 53, 24>(settings, WidthOf(settings), seq_len, **plan); break;
    }
  }
}

class RecipeOfModel : public testing::TestWithParam<std::string> {};

TEST_P(RecipeOfModel, Equal) {
  ModelSource source{.config_json = golden::ReadText("configs/" + GetParam())};
  source.component = golden::ComponentOf(source.config_json);
  const auto all = ReadModel(source, {});
  ASSERT_THAT(all, IsOk());
  for (const ModelLayers& layers : *all) {
    if (!layers.rotary) continue;
    SCOPED_TRACE(layers.layer_type);
    for (int64_t seq_len : {1, 4096, 4097, 131072, 1000000}) ExpectEqualInAllArithmetics(*layers.rotary, seq_len);
  }
}

std::vector<std::string> Configs() { return golden::List("configs"); }

INSTANTIATE_TEST_SUITE_P(Models, RecipeOfModel, testing::ValuesIn(Configs()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

class RandomParameters {
 public:
  explicit RandomParameters(uint32_t seed) : random_(seed) {}

  RotarySettings Draw(const std::string& rope_type) {
    RopeParameters p{.rope_type = rope_type, .rope_theta = std::exp(Uniform(std::log(50.0), std::log(1e8)))};
    RotarySettings settings{.rotary_dim = 2 * Integer(2, 40), .input_pairing = Pairing::kHalfSplit};
    const auto is = [&rope_type](std::initializer_list<const char*> types) {
      return std::find(types.begin(), types.end(), rope_type) != types.end();
    };
    if (is({"pixel", "constant"})) {
      p.rope_theta.reset();
    } else if (Integer(0, 3) == 0) {
      p.frequency_dim = static_cast<double>(*settings.rotary_dim + Integer(-1, 3));
    }
    if (Integer(0, 3) == 0) p.negate_angle = Coin();
    if (rope_type == "ntk_alpha") p.alpha = Uniform(1, 1000);
    if (rope_type == "pixel" && Coin()) p.max_freq = Uniform(1, 300);
    if (rope_type == "proportional" && Coin()) p.partial_rotary_factor = Uniform(0.01, 1);
    if (rope_type == "ntk" && Coin()) p.mixed_b = Uniform(-1, 2);
    if (!is({"default", "ntk_alpha", "qwen_ntk", "telechat_ntk", "pixel", "constant"}) &&
        !(rope_type == "proportional" && Coin()))
      p.factor = Coin() ? Uniform(1, 64) : static_cast<double>(Integer(1, 64));
    if (is({"dynamic", "telechat_ntk"})) settings.max_position_embeddings = static_cast<double>(Integer(1000, 100000));
    if (is({"qwen_ntk", "telechat_ntk", "yarn", "deepseek_yarn", "ggml_yarn", "longrope", "llama3"})) {
      p.original_max_position_embeddings = static_cast<double>(Integer(1000, 100000));
    }
    if (is({"yarn", "deepseek_yarn", "ggml_yarn"})) Yarn(p);
    if (rope_type == "ggml_yarn" && Coin()) {
      for (int64_t i = 0; i < *settings.rotary_dim / 2; ++i) p.freq_factors.push_back(Uniform(1, 30));
    }
    if (rope_type == "longrope") {
      for (int64_t i = 0; i < *settings.rotary_dim / 2; ++i) {
        p.short_factor.push_back(Uniform(1, 3));
        p.long_factor.push_back(Uniform(1, 70));
      }
      if (Coin()) p.attention_factor = Uniform(0, 2);
      if (Coin()) p.longrope_branch = Coin() ? LongropeBranch::kShort : LongropeBranch::kLong;
    }
    if (rope_type == "llama3") {
      p.low_freq_factor = Uniform(0.5, 2);
      p.high_freq_factor = Coin() ? *p.low_freq_factor : *p.low_freq_factor + Uniform(0, 5);
    }
    settings.frequencies = p;
    return settings;
  }
  int64_t Integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

 private:
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  bool Coin() { return Integer(0, 1) == 1; }

  void Yarn(RopeParameters& p) {
    if (Coin()) p.beta_slow = Uniform(0.5, 3);
    if (Coin()) p.beta_fast = Uniform(3, 60);
    if (p.rope_type == "ggml_yarn") {
      if (Coin()) p.ext_factor = Integer(0, 1) * Uniform(0, 2);
      if (Coin()) p.attn_factor = Uniform(0, 2);
      return;
    }
    if (p.rope_type == "yarn" && Coin()) p.truncate = Coin();
    if (p.rope_type == "yarn" && Coin()) p.attention_factor = Uniform(0, 2);
    if (Coin()) p.mscale = Uniform(0, 1.5);
    if (Coin()) p.mscale_all_dim = Uniform(0, 1.5);
  }

  std::mt19937 random_;
};

TEST(RecipeOfRandomParameters, Equal) {
  constexpr uint32_t kSeed = 20240607;
  RecordProperty("seed", kSeed);
  RandomParameters random(kSeed);
  for (const RopeMethod& method : RopeMethods()) {
    const std::string rope_type(method.rope_type);
    for (int n = 0; n < 40; ++n) {
      SCOPED_TRACE(testing::Message() << rope_type << " " << n << ", seed " << kSeed);
      const RotarySettings settings = random.Draw(rope_type);
      ExpectEqualInAllArithmetics(settings, random.Integer(1, 500000));
      if (HasFatalFailure()) return;
    }
  }
}

// Equal ramp ends: low == high is widened by 0.001.
TEST(RecipeOfYarn, EqualRampEnds) {
  const RopeParameters p{.rope_type = "yarn",
                         .rope_theta = 10000.0,
                         .factor = 4.0,
                         .original_max_position_embeddings = 4096.0,
                         .beta_fast = 8.0,
                         .beta_slow = 8.0,
                         .truncate = false};
  ExpectEqualInAllArithmetics({.frequencies = p, .rotary_dim = 64, .input_pairing = Pairing::kHalfSplit}, 1);
}

std::vector<double> ExactFrequencies(const RopeParameters& p, int64_t rotary_dim) {
  const RotarySettings settings{.frequencies = p, .rotary_dim = rotary_dim, .input_pairing = Pairing::kHalfSplit};
  const auto rotary = Rotary::Create(settings, Frequencies::kExact, {});
  EXPECT_THAT(rotary, IsOk());
  const auto plan = rotary->Plan(1);
  EXPECT_THAT(plan, IsOk());
  return (*plan)->inv_freq;
}

// Pair i has the frequency 2^-i and the ramp (i - 4) / 3. Pair 5 at factor 2^54 and pair 6 at 2^56 are half-way between
// two float64, though a third is not a float64. The expected values are fractions of whole numbers, rounded once:
// 2^-i (ramp / factor + 1 - ramp).
TEST(RecipeOfYarn, TiesOfInexactTerms) {
  for (const auto& [factor, fifth, sixth] : {std::tuple{0x1p54, 0x1.5555555555556p-6, 0x1.5555555555556p-8},
                                             {0x1p56, 0x1.5555555555555p-6, 0x1.5555555555556p-8}}) {
    const auto inv_freq = ExactFrequencies({.rope_type = "yarn",
                                            .rope_theta = 0x1p32,
                                            .factor = factor,
                                            .original_max_position_embeddings = 1e6,
                                            .attention_factor = 1.0,
                                            .beta_fast = 7033.721219977391,
                                            .beta_slow = 1758.4303049943478},
                                           64);
    EXPECT_EQ(inv_freq[5], fifth);
    EXPECT_EQ(inv_freq[6], sixth);
  }
}

// With a factor of 1 every mix of a frequency and its factor-th part is the frequency itself.
TEST(RecipeOfGgmlYarn, LargeSharesOfEqualFrequencies) {
  const std::vector<double> plain = ExactFrequencies({.rope_type = "default", .rope_theta = 10000.0}, 64);
  for (double ext_factor : {1.0, 1e30, 1e40, 1e60, 1e300}) {
    EXPECT_EQ(ExactFrequencies({.rope_type = "ggml_yarn",
                                .rope_theta = 10000.0,
                                .factor = 1.0,
                                .original_max_position_embeddings = 4096.0,
                                .ext_factor = ext_factor},
                               64),
              plain)
        << ext_factor;
  }
}

// 1/s is a subnormal float64. Rounded to 53 bits first, it would be rounded twice. Expected: the fraction, rounded
// once.
TEST(RecipeOfLinear, RoundsSubnormalFrequenciesOnce) {
  for (const auto& [factor, expected] : {std::pair{0x1.07d4bec0b6dcep+1023, 0x0.7c33613f1c873p-1022},
                                         {0x1.38c0c8f8703d1p+1023, 0x0.68c5d32f156edp-1022}}) {
    EXPECT_EQ(ExactFrequencies({.rope_type = "linear", .rope_theta = 10000.0, .factor = factor}, 2).front(), expected);
  }
}

// One to three pairs: the formulas divide by their number minus one.
TEST(RecipeOfPixels, FewPairs) {
  for (int64_t width : {2, 4, 6}) {
    ExpectEqualInAllArithmetics({.frequencies = RopeParameters{.rope_type = "pixel"},
                                 .rotary_dim = width,
                                 .input_pairing = Pairing::kHalfSplit},
                                1);
  }
}

}  // namespace
}  // namespace posenc::recipe_oracle_test
