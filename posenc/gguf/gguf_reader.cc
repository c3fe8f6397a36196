#include "posenc/gguf/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr uint32_t kMostLayers = 512;  // LLAMA_MAX_LAYERS
constexpr char kArchitecture[] = "gguf.general.architecture";

// Sets the numbers of layers.
absl::Status CountLayers(GgufFile& file) {
  const GgufFields& fields = file.fields;
  POSENC_ASSIGN_OR_RETURN(const auto blocks, fields.Number("block_count"));
  if (!blocks) return InvalidArgument("MISSING", fields.Path("block_count"), "", "must be given: the number of layers");
  if (*blocks < 1 || *blocks > kMostLayers) {
    return InvalidArgument("OUT_OF_RANGE", fields.Path("block_count"), fmt::format("{}", *blocks),
                           fmt::format("must be 1 .. {}", kMostLayers));
  }
  POSENC_ASSIGN_OR_RETURN(const auto predicting, fields.Number("nextn_predict_layers"));
  if (predicting.value_or(0) >= *blocks) {
    return Against(fields.Path("block_count"),
                   InvalidArgument("OUT_OF_RANGE", fields.Path("nextn_predict_layers"), fmt::format("{}", *predicting),
                                   fmt::format("must be below the number of layers, {}", *blocks)));
  }
  file.blocks = *blocks;
  file.layers = file.blocks - predicting.value_or(0);
  return absl::OkStatus();
}

// Largest slope exponent, or 0 for no ALiBi.
absl::StatusOr<double> AlibiBiasMax(const GgufFile& file) {
  constexpr double kUsual = 8;
  switch (file.type.alibi) {
    case GgufAlibi::kNone: return 0;
    case GgufAlibi::kEight: return kUsual;
    case GgufAlibi::kEightIf40Layers: return file.layers == 40 ? kUsual : 0;
    case GgufAlibi::kByKey: break;
  }
  POSENC_ASSIGN_OR_RETURN(const auto given, file.fields.Float("attention.max_alibi_bias"));
  return std::max(given.value_or(0), 0.0);
}

absl::StatusOr<ModelLayers> AlibiLayers(const GgufFile& file, double bias_max) {
  AlibiSettings alibi;
  POSENC_ASSIGN_OR_RETURN(alibi.num_heads, GgufHeadCount(file));
  alibi.slopes = AlibiSlopeRule::kPowerOfTwo;
  alibi.form = AlibiForm::kSymmetric;
  alibi.alibi_bias_max = bias_max;
  ModelLayers layers;
  layers.bias = alibi;
  layers.fields = {{"alibi.num_heads", file.fields.Path("attention.head_count")},
                   {"alibi.alibi_bias_max", file.fields.Path("attention.max_alibi_bias")}};
  return layers;
}

// Returns the kind's name. `twice`: layers of both kinds of rotation have this type.
std::string NameOf(const GgufLayerKind& kind, bool has_sliding, bool twice) {
  if (!kind.attends) return "linear_attention";
  if (!has_sliding) return kind.rotates ? "rope" : "no_rope";
  std::string name = kind.sliding ? "sliding_attention" : "full_attention";
  return twice && !kind.rotates ? name + "_no_rope" : name;
}

absl::StatusOr<std::vector<ModelLayers>> RotaryLayers(const GgufFile& file) {
  POSENC_ASSIGN_OR_RETURN(const std::vector<GgufLayerKind> kinds, GgufLayerKinds(file));
  POSENC_ASSIGN_OR_RETURN(const GgufHeads heads, GgufHeadsOf(file, kinds[0].sliding));
  const bool has_sliding = std::any_of(kinds.begin(), kinds.end(), [](const auto& kind) { return kind.sliding; });
  std::vector<GgufLayerKind> found;
  std::vector<ModelLayers> all;
  for (size_t n = 0; n < kinds.size(); ++n) {
    const auto known = std::find(found.begin(), found.end(), kinds[n]);
    const auto index = static_cast<size_t>(known - found.begin());
    if (known == found.end()) {
      found.push_back(kinds[n]);
      all.emplace_back();
    }
    all[index].layer_index.push_back(static_cast<uint32_t>(n));
  }
  for (size_t n = 0; n < all.size(); ++n) {
    GgufLayerKind other = found[n];
    other.rotates = !other.rotates;
    const bool twice = std::find(found.begin(), found.end(), other) != found.end();
    if (all.size() > 1) all[n].layer_type = NameOf(found[n], has_sliding, twice);
    if (found[n].rotates) POSENC_RETURN_IF_ERROR(SetGgufRotary(file, heads, found[n].sliding, &all[n]));
    if (found[n].attends) {
      POSENC_RETURN_IF_ERROR(SetGgufQueryScale(file, found[n].rotates, has_sliding, &all[n]));
    }
  }
  return all;
}

// Adds notes about what the file says and the settings do not.
absl::Status AddNotes(GgufFile& file) {
  file.Say(
      "GGUF", kArchitecture,
      "read as llama.cpp (with ggml 0.25.3) reads it, not by config_rules; llama.cpp computes in float32, and powers "
      "of theta as products");
  if (file.type.add_notes != nullptr) POSENC_RETURN_IF_ERROR(file.type.add_notes(file));
  const bool has_factors = !file.gguf.factors.empty();
  if (IsSplit(file.gguf) && !has_factors && file.type.divisors != GgufDivisors::kNone) {
    file.Say("SPLIT", "gguf.split.count", "frequency factors in the model's other files are not read");
  }
  return absl::OkStatus();
}

void AddUnread(GgufFile& file) {
  for (const std::string& path : file.fields.UnreadRopePaths()) {
    file.Say("NOT_USED", path, "llama.cpp does not rotate by this key for the file's architecture");
  }
  for (const GgufFactors& factors : file.gguf.factors) {
    const bool reads_freqs = file.type.divisors == GgufDivisors::kFreqs || file.type.divisors == GgufDivisors::kByType;
    const bool reads_lengths =
        file.type.divisors == GgufDivisors::kLongShort || file.type.divisors == GgufDivisors::kByType;
    if (factors.name == kRopeFreqs ? reads_freqs : reads_lengths) continue;
    file.Say("NOT_USED", fmt::format("{}.{}", kGguf, factors.name),
             "llama.cpp does not divide frequencies by this tensor for the file's architecture");
  }
}

void OverridePairing(const ModelSource& source, ModelLayers* layers) {
  if (!layers->rotary || !layers->rotary->input_pairing) return;
  if (source.input_pairing) {
    if (*source.input_pairing != *layers->rotary->input_pairing) {
      layers->notes.push_back(
          {"PAIRING_OVERRIDDEN", "input_pairing", "the request's pairing replaces the architecture's own"});
    }
    layers->rotary->input_pairing = layers->rotary->output_pairing = source.input_pairing;
  }
  if (source.output_pairing) layers->rotary->output_pairing = source.output_pairing;
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> ReadGgufModel(const ModelSource& source, const Limits& limits) {
  if (static_cast<int64_t>(source.gguf.size()) > limits.max_config_json_bytes) {
    return InvalidArgument("OUT_OF_RANGE", kGguf, fmt::format("{} bytes", source.gguf.size()),
                           fmt::format("must be at most {} bytes: the header without the tokenizer, and the tensors of "
                                       "frequency factors",
                                       limits.max_config_json_bytes));
  }
  if (!source.component.empty()) {
    return InvalidArgument("UNKNOWN_VALUE", "component", source.component, "must be absent: a GGUF has no parts");
  }
  POSENC_ASSIGN_OR_RETURN(const Gguf gguf, ReadGguf(source.gguf));
  POSENC_ASSIGN_OR_RETURN(const std::string architecture, ArchitectureOf(gguf));
  const GgufType* type = FindGgufType(architecture);
  if (type == nullptr) {
    return InvalidArgument("UNSUPPORTED", kArchitecture, architecture,
                           "must be an architecture that is known: docs/model-types.md lists them");
  }
  if (!type->instead.empty()) {
    return InvalidArgument("UNSUPPORTED", kArchitecture, architecture,
                           fmt::format("must be an architecture that can be read: {}", type->instead));
  }
  if (source.wanted != Wanted::kAny && source.wanted != Wanted::kRotaryOrBias) {
    return InvalidArgument("UNSUPPORTED", kArchitecture, architecture,
                           "must be of a model with what the call needs: a GGUF gives a rotary embedding or ALiBi");
  }
  const GgufFields fields(gguf, architecture);
  GgufFile file{gguf, *type, fields, limits, 0, 0, {}};
  POSENC_RETURN_IF_ERROR(CountLayers(file));
  POSENC_RETURN_IF_ERROR(AddNotes(file));
  POSENC_ASSIGN_OR_RETURN(const auto longest, fields.Number("context_length"));
  POSENC_ASSIGN_OR_RETURN(const double bias_max, AlibiBiasMax(file));
  std::vector<ModelLayers> all;
  if (bias_max > 0) {
    POSENC_ASSIGN_OR_RETURN(all.emplace_back(), AlibiLayers(file, bias_max));
    for (int64_t n = 0; n < file.layers; ++n) all[0].layer_index.push_back(static_cast<uint32_t>(n));
  } else if (type->alibi == GgufAlibi::kByKey || (type->alibi == GgufAlibi::kEightIf40Layers && file.layers != 32)) {
    // Layers without either: jais and mpt without the key, and Baichuan's sizes that llama.cpp does not know.
    for (int64_t n = 0; n < file.layers; ++n) {
      if (n == 0) all.emplace_back();
      all[0].layer_index.push_back(static_cast<uint32_t>(n));
    }
  } else {
    POSENC_ASSIGN_OR_RETURN(all, RotaryLayers(file));
  }
  if (bias_max == 0) AddUnread(file);
  for (ModelLayers& layers : all) {
    layers.file = kGguf;
    layers.original = "llama.cpp";
    layers.precision = kF32Precision;
    if (longest && *longest > 0) layers.longest = *longest;
    layers.longest_field = "context_length";
    layers.notes.insert(layers.notes.begin(), file.notes.begin(), file.notes.end());
    OverridePairing(source, &layers);
  }
  return all;
}

}  // namespace posenc
