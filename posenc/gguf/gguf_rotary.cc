// Rotary settings of a GGUF's layers, as llama.cpp computes them from the metadata and the frequency factors.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "posenc/base/status.h"
#include "posenc/exact/real.h"
#include "posenc/gguf/gguf_reader.h"

namespace posenc {
namespace {

// Divisor that stops a pair: its angle is 0 in every precision. A divisor must be finite.
constexpr double kStops = 1e300;

constexpr std::string_view kTheta = "rope.freq_base", kSlidingTheta = "rope.freq_base_swa";
constexpr std::string_view kScalingType = "rope.scaling.type", kFactor = "rope.scaling.factor";
constexpr std::string_view kOldFactor = "rope.scale_linear", kAttnFactor = "rope.scaling.attn_factor";
constexpr std::string_view kOriginal = "rope.scaling.original_context_length", kContext = "context_length";
constexpr std::string_view kSections = "rope.dimension_sections", kAlpha = "rope.scaling.alpha";
constexpr std::string_view kLogMultiplier = "rope.scaling.yarn_log_multiplier";

// The scaling of layers that are not sliding.
struct GgufScaling {
  std::string type = "linear";
  std::string_view factor_key = kFactor;
  double factor = 1;
  double sliding_factor = 1;  // of sliding layers that share it: rope.scaling.type "none" does not reset theirs
  double ext_factor = 0;
  double attn_factor = 1;  // ggml's mscale, before its own factor of 1 + 0.1 ln s
  double beta_fast = 32, beta_slow = 1;
  double original = 0;
  std::string_view original_key = kOriginal;
  double softmax = 1;
};

// 0.1 mscale ln factor + 1, for factor > 1.
Real Magnitude(double factor, const Real& mscale) {
  return factor <= 1 ? Real(1.0) : Real(1.0) / Real(10.0) * mscale * Log(Real(factor)) + Real(1.0);
}

// Sets attn_factor, which llama.cpp makes of the YaRN magnitudes so that ggml's own factor cancels, and softmax.
absl::Status SetMagnitudes(const GgufFile& file, double yarn_attn_factor, GgufScaling* scaling) {
  double given = 0;
  if (file.type.log_multiplier != GgufLogMultiplier::kNotRead) {
    POSENC_ASSIGN_OR_RETURN(const auto multiplier, file.fields.Float(kLogMultiplier));
    given = multiplier.value_or(0);
  }
  std::optional<double> attn_factor;
  if (!file.type.unit_magnitude) {
    POSENC_ASSIGN_OR_RETURN(attn_factor, file.fields.Float(kAttnFactor));
  }
  scaling->attn_factor = yarn_attn_factor * attn_factor.value_or(1);
  if (scaling->factor <= 0) return absl::OkStatus();  // refused where the settings are checked
  const bool tenfold = file.type.log_multiplier != GgufLogMultiplier::kAsGiven;
  const Real multiplier = tenfold ? Real(given) * Real(10.0) : Real(given);
  const Real log = Log(Real(scaling->factor)) / Real(10.0), own = Real(1.0) + log;
  Real factor(scaling->attn_factor);
  if (scaling->ext_factor != 0) {
    const bool same = file.type.log_multiplier == GgufLogMultiplier::kTenfoldBoth && given != 0;
    const Real above = Magnitude(scaling->factor, same ? multiplier : Real(1.0));
    factor = Real(attn_factor.value_or(1));
    // Without a multiplier and with a factor of at least 1, the two magnitudes cancel.
    if (given != 0) factor = factor * above / Magnitude(scaling->factor, multiplier) / own;
    if (given == 0 && (scaling->factor < 1 || file.type.unit_magnitude)) factor = factor / own;
    scaling->attn_factor = NearestDouble(factor);
  }
  if (file.type.scales_scores) {
    const Real m = factor * own * (Real(1.0) + multiplier * log);
    scaling->softmax = NearestDouble(m * m);
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufScaling> ScalingOf(const GgufFile& file) {
  const GgufFields& fields = file.fields;
  GgufScaling scaling;
  POSENC_ASSIGN_OR_RETURN(const auto type, fields.String(kScalingType));
  if (type) scaling.type = *type;
  if (scaling.type != "none" && scaling.type != "linear" && scaling.type != "yarn" && scaling.type != "longrope") {
    return InvalidArgument("UNKNOWN_VALUE", fields.Path(kScalingType), scaling.type,
                           "must be one of none, linear, yarn, longrope");
  }
  POSENC_ASSIGN_OR_RETURN(auto factor, fields.Float(kFactor));
  POSENC_ASSIGN_OR_RETURN(const auto old_factor, fields.Float(kOldFactor));
  if (!factor && old_factor) {
    factor = old_factor;
    scaling.factor_key = kOldFactor;
  }
  if (factor && *factor != 0) scaling.sliding_factor = *factor;
  if (scaling.type != "none") scaling.factor = scaling.sliding_factor;

  POSENC_ASSIGN_OR_RETURN(const auto context, fields.Number(kContext));
  POSENC_ASSIGN_OR_RETURN(const auto original, fields.Number(kOriginal));
  const bool has_original = original && *original != 0;
  scaling.original = has_original ? *original : context.value_or(0);
  if (!has_original) scaling.original_key = kContext;

  double ext_factor = -1, yarn_attn_factor = 1;
  scaling.beta_fast = file.type.beta_fast;
  if (file.type.reads_ext_factor) {
    POSENC_ASSIGN_OR_RETURN(const auto ext, fields.Float("rope.scaling.yarn_ext_factor"));
    POSENC_ASSIGN_OR_RETURN(const auto attn, fields.Float("rope.scaling.yarn_attn_factor"));
    ext_factor = ext.value_or(ext_factor);
    yarn_attn_factor = attn.value_or(yarn_attn_factor);
  }
  if (file.type.reads_betas) {
    POSENC_ASSIGN_OR_RETURN(const auto fast, fields.Float("rope.scaling.yarn_beta_fast"));
    POSENC_ASSIGN_OR_RETURN(const auto slow, fields.Float("rope.scaling.yarn_beta_slow"));
    scaling.beta_fast = fast.value_or(scaling.beta_fast);
    scaling.beta_slow = slow.value_or(scaling.beta_slow);
  }
  scaling.ext_factor = ext_factor >= 0 ? ext_factor : scaling.type == "yarn" ? 1 : 0;
  POSENC_RETURN_IF_ERROR(SetMagnitudes(file, yarn_attn_factor, &scaling));
  return scaling;
}

// Returns the tensor as float64; empty if the file has none. MISMATCH unless it has a divisor for each pair.
absl::StatusOr<std::vector<double>> Divisors(const GgufFile& file, std::string_view name, int64_t pairs) {
  const std::vector<float>* factors = FactorsOf(file.gguf, name);
  if (factors == nullptr) return std::vector<double>();
  // llama.cpp lets layers that rotate less share a longer tensor if widths differ by layer.
  const auto count = static_cast<int64_t>(factors->size());
  if (count < pairs || (count > pairs && !file.type.width_by_layer)) {
    return Against(file.fields.Path("rope.dimension_count"),
                   InvalidArgument("MISMATCH", fmt::format("{}.{}", kGguf, name), fmt::format("{} values", count),
                                   fmt::format("must have a value for each pair: {}", pairs)));
  }
  return std::vector<double>(factors->begin(), factors->begin() + pairs);
}

struct AllDivisors {
  std::vector<double> freqs, longs, shorts;
};

absl::StatusOr<AllDivisors> AllDivisorsOf(const GgufFile& file, const GgufScaling& scaling, int64_t pairs) {
  AllDivisors all;
  const bool by_length = file.type.divisors == GgufDivisors::kLongShort ||
                         (file.type.divisors == GgufDivisors::kByType && scaling.type == "longrope");
  if (by_length) {
    POSENC_ASSIGN_OR_RETURN(all.longs, Divisors(file, kRopeFactorsLong, pairs));
    POSENC_ASSIGN_OR_RETURN(all.shorts, Divisors(file, kRopeFactorsShort, pairs));
    if (all.longs.empty() != all.shorts.empty()) {  // the list that is missing divides by 1
      (all.longs.empty() ? all.longs : all.shorts).assign(static_cast<size_t>(pairs), 1);
    }
  } else if (file.type.divisors != GgufDivisors::kNone) {
    POSENC_ASSIGN_OR_RETURN(all.freqs, Divisors(file, kRopeFreqs, pairs));
  }
  return all;
}

// Numbers of pairs of the axes t, h, w and a fourth. Empty: one axis.
absl::StatusOr<std::vector<int64_t>> SectionsOf(const GgufFile& file) {
  const GgufPairs pairs = file.type.pairs;
  if (pairs == GgufPairs::kNorm || pairs == GgufPairs::kNeox) return std::vector<int64_t>();
  POSENC_ASSIGN_OR_RETURN(const auto given, file.fields.NumberOrList(kSections, 4, /*is_signed=*/true));
  const bool has_two = given && (*given)[0] > 0 && (*given)[1] > 0;
  if (pairs == GgufPairs::kNormOrMrope || pairs == GgufPairs::kNeoxOrMrope) {
    return has_two ? *given : std::vector<int64_t>();
  }
  if (given) return *given;
  return InvalidArgument("MISSING", file.fields.Path(kSections), "",
                         "must be 4 numbers of pairs, for t, h, w and another");
}

// Sets the axes of the pairs. Adds divisors that stop the pairs which llama.cpp gives to its unused fourth axis.
absl::Status SetSections(const GgufFile& file, std::vector<int64_t> sections, int64_t pairs, RopeParameters* parameters,
                         std::vector<double>* divisors, ModelLayers* layers) {
  const auto refuse = [&](std::string_view limit) {
    return InvalidArgument("OUT_OF_RANGE", file.fields.Path(kSections),
                           fmt::format("[{}, {}, {}, {}]", sections[0], sections[1], sections[2], sections[3]), limit);
  };
  for (const int64_t section : sections) {
    if (section < 0 || section > pairs) return refuse(fmt::format("must be 4 numbers of 0 .. {}", pairs));
  }
  if (std::accumulate(sections.begin(), sections.end(), int64_t{0}) != pairs) {
    return refuse(fmt::format("must sum to {}, the number of pairs: llama.cpp repeats shorter sections", pairs));
  }
  const bool interleaved = file.type.pairs == GgufPairs::kImrope;
  const bool has_fourth = sections[3] != 0;
  if (interleaved && has_fourth) return refuse("must have 0 as the fourth number: it has no axis in this order");
  if (has_fourth) {
    layers->notes.push_back({"POSITIONS", file.fields.Path(kSections),
                             "positions have a fourth axis; llama.cpp sets it to 0 for tokens of text"});
  } else {
    sections.resize(3);
  }
  parameters->mrope_order = interleaved ? MropeOrder::kInterleaved : MropeOrder::kContiguous;
  parameters->mrope_section = sections;
  if (interleaved) {  // h and w have every third pair at most, whatever their sections say
    const int64_t h = std::min(sections[1], (pairs + 1) / 3), w = std::min(sections[2], pairs / 3);
    parameters->mrope_section = {pairs - h - w, h, w};
  }
  layers->fields.push_back({"rope_parameters.mrope_section", file.fields.Path(kSections)});
  if (!interleaved) return absl::OkStatus();
  std::string stopped;
  for (int64_t n = 0; n < pairs; ++n) {
    if (n < 3 * sections[n % 3]) continue;
    if (divisors->empty()) divisors->assign(static_cast<size_t>(pairs), 1);
    (*divisors)[n] = kStops;
    stopped += fmt::format("{}{}", stopped.empty() ? "" : ", ", n);
  }
  if (!stopped.empty()) {
    layers->notes.push_back(
        {"PAIRS_STOPPED", file.fields.Path(kSections),
         fmt::format("pairs {} do not rotate: llama.cpp gives them to a fourth axis, whose position "
                     "is 0; transformers rotates them by t",
                     stopped)});
  }
  return absl::OkStatus();
}

absl::StatusOr<double> ThetaOf(const GgufFile& file, const GgufHeads& heads, bool sliding, std::string_view* key) {
  *key = kTheta;
  if (file.type.fixed_theta != 0 && !file.type.only_theta) return file.type.fixed_theta;
  POSENC_ASSIGN_OR_RETURN(const auto given, file.fields.Float(kTheta));
  if (file.type.only_theta && given.value_or(file.type.fixed_theta) != file.type.fixed_theta) {
    return InvalidArgument("OUT_OF_RANGE", file.fields.Path(kTheta), fmt::format("{}", *given),
                           fmt::format("must be {}, without which llama.cpp aborts", file.type.fixed_theta));
  }
  double theta = given.value_or(10000);
  if (!sliding && file.type.theta_key != kTheta) {
    POSENC_ASSIGN_OR_RETURN(const auto own, file.fields.Float(file.type.theta_key));
    *key = file.type.theta_key;
    if (!own)
      return InvalidArgument("MISSING", file.fields.Path(*key), "", "must be given: layers that compress have it");
    theta = *own;
  }
  if (sliding && file.type.sliding->theta != GgufSliding::Theta::kFull) {
    POSENC_ASSIGN_OR_RETURN(const auto own, file.fields.Float(kSlidingTheta));
    const bool falls_back = !own && file.type.sliding->theta == GgufSliding::Theta::kShared;
    if (!falls_back) *key = kSlidingTheta;
    theta = own.value_or(falls_back ? theta : 10000);
  }
  if (file.type.reads_alpha) {
    POSENC_ASSIGN_OR_RETURN(const auto alpha, file.fields.Float(kAlpha));
    const auto width = static_cast<double>(heads.width);
    if (alpha && *alpha > 0) theta = NearestDouble(Real(theta) * Pow(Real(*alpha), Real(width) / Real(width - 2)));
  }
  return theta;
}

}  // namespace

absl::Status SetGgufRotary(const GgufFile& file, const GgufHeads& heads, bool sliding, ModelLayers* layers) {
  const GgufFields& fields = file.fields;
  const auto comes = [&](std::string_view setting, std::string_view key) {
    layers->fields.push_back({fmt::format("rope_parameters.{}", setting), fields.Path(key)});
  };
  POSENC_ASSIGN_OR_RETURN(GgufScaling scaling, ScalingOf(file));
  using Scaling = GgufSliding::Scaling;
  const Scaling share = sliding ? file.type.sliding->scaling : Scaling::kFull;
  if (sliding && file.type.sliding->theta != GgufSliding::Theta::kFull) scaling.factor = scaling.sliding_factor;
  if (file.type.unscaled || share == Scaling::kNone) scaling.ext_factor = 0;
  if (file.type.unscaled || share == Scaling::kNone) scaling.attn_factor = 1;
  if (file.type.unscaled || share != Scaling::kFull) scaling.factor = 1;
  if (scaling.factor == 1) scaling.ext_factor = 0;  // the ramp then mixes equal frequencies

  const int64_t width = sliding ? heads.sliding_rotated : heads.rotated, pairs = width / 2;
  const bool divides = !sliding || !file.type.width_by_layer;  // such layers share the full layers' tensors only
  AllDivisors divisors;
  if (divides) {
    POSENC_ASSIGN_OR_RETURN(divisors, AllDivisorsOf(file, scaling, pairs));
  }
  RotarySettings rotary;
  RopeParameters parameters;
  std::string_view theta_key;
  POSENC_ASSIGN_OR_RETURN(parameters.rope_theta, ThetaOf(file, heads, sliding, &theta_key));
  comes("rope_theta", theta_key);
  POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> sections, SectionsOf(file));
  if (!sections.empty()) {
    POSENC_RETURN_IF_ERROR(SetSections(file, sections, pairs, &parameters, &divisors.freqs, layers));
  }

  comes("factor", scaling.factor_key);
  comes("attn_factor", kAttnFactor);
  comes("original_max_position_embeddings", scaling.original_key);
  comes("freq_factors", kRopeFreqs);
  layers->fields.back().path = fmt::format("{}.{}", kGguf, kRopeFreqs);
  if (!divisors.longs.empty()) {
    if (scaling.ext_factor != 0) {
      return Against(fmt::format("{}.{}", kGguf, kRopeFactorsLong),
                     InvalidArgument("CONFLICT", fields.Path(kScalingType), scaling.type,
                                     "must not be yarn beside rope_factors_long.weight"));
    }
    parameters.rope_type = "longrope";
    parameters.attention_factor = scaling.attn_factor;
    parameters.original_max_position_embeddings = scaling.original;
    for (double& divisor : divisors.longs) divisor *= scaling.factor;
    for (double& divisor : divisors.shorts) divisor *= scaling.factor;
    parameters.long_factor = std::move(divisors.longs);
    parameters.short_factor = std::move(divisors.shorts);
    comes("attention_factor", kAttnFactor);
    layers->fields.push_back({"rope_parameters.long_factor", fmt::format("{}.{}", kGguf, kRopeFactorsLong)});
    layers->fields.push_back({"rope_parameters.short_factor", fmt::format("{}.{}", kGguf, kRopeFactorsShort)});
    layers->notes.push_back(
        {"CONTEXT_LENGTH", fmt::format("{}.{}", kGguf, kRopeFactorsLong),
         "llama.cpp selects the factors by the context size it is started with (n_ctx per sequence), "
         "not by the number of tokens: give that size as seq_len"});
  } else if (divisors.freqs.empty() && scaling.attn_factor == 1 && scaling.ext_factor == 0) {
    parameters.rope_type = scaling.factor == 1 ? "default" : "linear";
    if (scaling.factor != 1) parameters.factor = scaling.factor;
  } else {
    parameters.rope_type = "ggml_yarn";
    parameters.factor = scaling.factor;
    parameters.ext_factor = scaling.ext_factor;
    parameters.attn_factor = scaling.attn_factor;
    parameters.freq_factors = std::move(divisors.freqs);
    if (scaling.ext_factor != 0) {
      parameters.original_max_position_embeddings = scaling.original;
      parameters.beta_fast = scaling.beta_fast;
      parameters.beta_slow = scaling.beta_slow;
      comes("beta_fast", "rope.scaling.yarn_beta_fast");
      comes("beta_slow", "rope.scaling.yarn_beta_slow");
      comes("ext_factor", "rope.scaling.yarn_ext_factor");
    }
  }
  const bool pairs_whole =
      sections.empty() && (file.type.pairs == GgufPairs::kNorm || file.type.pairs == GgufPairs::kNormOrMrope);
  rotary.input_pairing = rotary.output_pairing = pairs_whole ? Pairing::kInterleaved : Pairing::kHalfSplit;
  rotary.rotary_dim = width;
  rotary.frequencies = std::move(parameters);
  layers->fields.push_back({"rotary_dim", fields.Path("rope.dimension_count")});
  layers->rotary = std::move(rotary);
  layers->whole_head = sliding ? heads.sliding_width : heads.width;
  if (file.type.latent) layers->rotary_offset = layers->whole_head - width;
  if (scaling.softmax != 1) layers->softmax_scale_factor = scaling.softmax;
  return absl::OkStatus();
}

}  // namespace posenc
