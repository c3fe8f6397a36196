#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "posenc/diagnose/options.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc::diagnose {
namespace {

// The numbers from which a mistake computes one pair's frequency.
struct ScaledPair {
  double plain, scaled;  // the frequency without and with the scaling
  double factor;         // the scaling's
  double kept;           // share of the plain frequency in the blend: 1 not scaled, 0 divided by the factor
  double pair, pairs;
  double theta, width;
  const std::vector<double>& all;        // the scaled frequencies
  double low, high;                      // yarn's ramp, in pairs
  double exchanged_low, exchanged_high;  // with beta_fast and beta_slow exchanged
};

// A wrong way to compute frequencies: a code, the scalings in which it is made, what was done, and the result.
struct ScalingMistake {
  std::string_view code, rope_types;  // types separated by spaces; empty: any
  std::string_view sentence;
  double (*frequency)(const ScaledPair& at);
};

double Ramp(const ScaledPair& at, double pair) { return std::clamp((pair - at.low) / (at.high - at.low), 0.0, 1.0); }
// The share that is kept if beta_fast and beta_slow are exchanged: the ramp slows the short waves.
double Exchanged(const ScaledPair& at) {
  return 1 - std::clamp((at.pair - at.exchanged_low) / (at.exchanged_high - at.exchanged_low), 0.0, 1.0);
}
double Blend(const ScaledPair& at, double kept) { return at.plain * (kept + (1 - kept) / at.factor); }

constexpr ScalingMistake kMistakes[] = {
    {"ORDER_REVERSED", "", "frequencies are in reverse order, the lowest first",
     [](const ScaledPair& at) { return at.all[static_cast<size_t>(at.pairs - 1 - at.pair)]; }},
    {"FACTOR_INVERTED", "longrope yarn llama3 proportional",
     "frequencies were multiplied by the scaling's factors, not divided",
     [](const ScaledPair& at) { return at.plain * at.plain / at.scaled; }},
    {"RAMP_REVERSED", "yarn llama3",
     "the blend is reversed: pairs to keep were divided by the factor, pairs to divide kept",
     [](const ScaledPair& at) { return Blend(at, 1 - at.kept); }},
    {"RAMP_REVERSED", "llama3", "the blend's two weights are exchanged",
     [](const ScaledPair& at) { return Blend(at, at.kept > 0 && at.kept < 1 ? 1 - at.kept : at.kept); }},
    {"WAVELENGTHS_BLENDED", "yarn llama3", "wavelengths were blended, not frequencies",
     [](const ScaledPair& at) { return at.plain / (at.kept + (1 - at.kept) * at.factor); }},
    {"BETA_FAST", "yarn", "beta_fast and beta_slow are exchanged",
     [](const ScaledPair& at) { return Blend(at, Exchanged(at)); }},
    {"RAMP_INDEX", "yarn", "the ramp was evaluated at elements 0, 2, 4, ..., not at pairs 0, 1, 2, ...",
     [](const ScaledPair& at) { return Blend(at, 1 - Ramp(at, 2 * at.pair)); }},
    {"EXPONENTS", "default", "exponents run to 1 at the last pair: i / (d/2 - 1), not i / (d/2)",
     [](const ScaledPair& at) { return std::pow(at.theta, -at.pair / std::max(1.0, at.pairs - 1)); }},
    {"EXPONENTS", "default", "exponents begin one pair late: (i + 1) / (d/2), not i / (d/2)",
     [](const ScaledPair& at) { return std::pow(at.theta, -(at.pair + 1) / at.pairs); }},
};

// No mistake, but farther off than float32 phases: tried only if nothing else explains the data.
constexpr ScalingMistake kRecipes[] = {
    {"THETA_SCALE_ROUNDED", "", "frequencies are powers of theta^(-2/d) rounded to float32, as in ggml's kernels",
     [](const ScaledPair& at) {
       const double scale = static_cast<float>(std::pow(at.theta, -2 / at.width));
       return at.scaled / at.plain * std::pow(scale, at.pair);
     }},
    {"EXPONENTS_ROUNDED", "", "frequencies are exp(-2i log(theta) / d) of exponents rounded to float32",
     [](const ScaledPair& at) {
       const float each = static_cast<float>(-std::log(at.theta) / at.width);
       return at.scaled / at.plain * std::exp(static_cast<double>(static_cast<float>(2 * at.pair) * each));
     }},
    {"EXPONENTS_ROUNDED", "", "frequencies are exp2(-2i log2(theta) / d) of exponents rounded to float32",
     [](const ScaledPair& at) {
       const float each = static_cast<float>(-std::log2(at.theta) / at.width);
       return at.scaled / at.plain * std::exp2(static_cast<double>(static_cast<float>(2 * at.pair) * each));
     }},
};

bool IsOf(std::string_view types, std::string_view type) {
  while (!types.empty()) {
    const size_t end = std::min(types.find(' '), types.size());
    if (types.substr(0, end) == type) return true;
    types.remove_prefix(std::min(end + 1, types.size()));
  }
  return false;
}

// The pair at which yarn's ramp has this number of rotations in the original length.
double PairWith(const RopeParameters& p, double rotations, double width) {
  const double turns = *p.original_max_position_embeddings / (2 * std::numbers::pi * rotations);
  return width * std::log(turns) / (2 * std::log(*p.rope_theta));
}

std::vector<Option> Options(absl::Span<const ScalingMistake> mistakes, const RotarySettings& settings,
                            const Tokens& tokens, const Limits& limits) {
  std::vector<Option> options;
  const auto* p = std::get_if<RopeParameters>(&settings.frequencies);
  if (p == nullptr || !p->rope_theta) return options;
  const auto rotary = Rotary::Create(settings, Frequencies::kFloat64, limits);
  if (!rotary.ok() || (rotary->NeedsSeqLen() && tokens.seq_len.size() != 1)) return options;
  const auto plan = rotary->Plan(rotary->NeedsSeqLen() ? tokens.seq_len[0] : 0);
  if (!plan.ok()) return options;
  const std::vector<double>& scaled = (*plan)->inv_freq;
  const auto pairs = static_cast<double>(scaled.size());
  const double theta = *p->rope_theta, width = p->frequency_dim.value_or(2 * pairs), factor = p->factor.value_or(1);
  double low = 0, high = 1, exchanged_low = 0, exchanged_high = 1;
  if (p->rope_type == "yarn" && p->original_max_position_embeddings && p->beta_fast && p->beta_slow) {
    const auto ramp = [&](double from, double to, double* first, double* last) {
      *first = PairWith(*p, from, width), *last = PairWith(*p, to, width);
      if (p->truncate.value_or(true)) *first = std::floor(*first), *last = std::ceil(*last);
      *first = std::max(*first, 0.0), *last = std::min(*last, width - 1);
      if (*first == *last) *last += 0.001;
    };
    ramp(*p->beta_fast, *p->beta_slow, &low, &high);
    ramp(*p->beta_slow, *p->beta_fast, &exchanged_low, &exchanged_high);
  }
  for (const ScalingMistake& mistake : mistakes) {
    if (!mistake.rope_types.empty() && !IsOf(mistake.rope_types, p->rope_type)) continue;
    GivenFrequencies given{{}, (*plan)->attention_scaling, (*plan)->axis};
    for (size_t k = 0; k < scaled.size(); ++k) {
      const auto pair = static_cast<double>(k);
      const double plain = std::pow(theta, -2 * pair / width);
      const double kept = factor == 1 ? 1 : std::clamp((scaled[k] / plain - 1 / factor) / (1 - 1 / factor), 0.0, 1.0);
      given.inv_freq.push_back(mistake.frequency({plain, scaled[k], factor, kept, pair, pairs, theta, width, scaled,
                                                  low, high, exchanged_low, exchanged_high}));
    }
    Option option{settings};
    option.settings.frequencies = std::move(given);
    option.settings.max_position_embeddings.reset();
    option.departures = {{std::string(mistake.code), std::string(mistake.sentence)}};
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace

std::vector<Option> ScalingMistakes(const RotarySettings& settings, const Tokens& tokens, const Limits& limits) {
  return Options(kMistakes, settings, tokens, limits);
}

std::vector<Option> FrequencyRecipes(const RotarySettings& settings, const Tokens& tokens, const Limits& limits) {
  return Options(kRecipes, settings, tokens, limits);
}

}  // namespace posenc::diagnose
