#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

bool IsSewD(const Part& part) { return part.type.terms == Terms::kSewD; }

absl::Status SwitchedOff(const Part& part, std::string_view field, std::string_view value, std::string_view wanted) {
  return InvalidArgument(
      "UNSUPPORTED", part.config.Path(field), value,
      fmt::format("must be {}: else model_type \"{}\" has no relative score terms", wanted, part.type.name));
}

// Reads a field that names a kind of positions. Returns `otherwise` if absent, but "null" for JSON null.
absl::StatusOr<std::string> Kind(const Part& part, std::string_view field, std::string_view otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto kind, part.config.String(field));
  if (kind) return *kind;
  return part.config.tree().contains(std::string(field)) ? std::string("null") : std::string(otherwise);
}

// Splits "C2P | p2c" into "c2p" and "p2c".
std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words = absl::StrSplit(absl::AsciiStrToLower(text), '|');
  for (std::string& word : words) absl::StripAsciiWhitespace(&word);
  return words;
}

// Reads pos_att_type: a list, or a string like "c2p|p2c" in older files.
absl::StatusOr<std::vector<std::string>> AttentionTypes(const Part& part) {
  constexpr std::string_view kField = "pos_att_type";
  const nlohmann::json* value = part.config.Find(kField);
  if (value == nullptr) {
    return IsSewD(part) ? std::vector<std::string>{"p2c", "c2p"} : std::vector<std::string>();
  }
  std::vector<std::string> types;
  if (value->is_string()) {
    types = Words(value->get<std::string>());
  } else {
    POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings(kField));
    types = *listed;
  }
  for (const std::string& type : types) {
    if ((type == "c2p" || type == "p2c") && std::count(types.begin(), types.end(), type) == 1) continue;
    return InvalidArgument("UNKNOWN_VALUE", part.config.Path(kField), type, "must be c2p, p2c or both, each once");
  }
  return types;
}

bool Has(const std::vector<std::string>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

absl::StatusOr<ModelTerms> DebertaOf(Part& part) {
  const ConfigObject& config = part.config;
  const bool first = part.type.terms == Terms::kDeberta, sew_d = IsSewD(part);
  DebertaSettings deberta;
  deberta.distance = DebertaDistance::kUnbounded;
  POSENC_ASSIGN_OR_RETURN(auto largest, config.Length("max_relative_positions"));
  if (!largest) {
    POSENC_ASSIGN_OR_RETURN(largest, config.Length("max_position_embeddings"));
    if (!largest) largest = 512;
    part.Say("DEFAULTED", "max_relative_positions",
             fmt::format("absent or below 1: max_position_embeddings, {}, is used", *largest));
  }
  deberta.max_relative_positions = *largest;
  if (!first) {
    POSENC_ASSIGN_OR_RETURN(deberta.position_buckets, config.Length("position_buckets"));
    if (sew_d && config.Find("position_buckets") == nullptr) deberta.position_buckets = 256;
    POSENC_ASSIGN_OR_RETURN(const std::string norm, Kind(part, "norm_rel_ebd", sew_d ? "layer_norm" : "none"));
    if (Has(Words(norm), "layer_norm")) {
      POSENC_ASSIGN_OR_RETURN(const auto epsilon, config.Number({"layer_norm_eps"}));
      deberta.layer_norm = LayerNorm{.epsilon = epsilon.value_or(1e-7)};
    }
  }
  POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> types, AttentionTypes(part));
  if (Has(types, "c2p")) deberta.key.emplace();
  if (Has(types, "p2c")) deberta.query.emplace();
  POSENC_ASSIGN_OR_RETURN(const auto shares, config.Bool("share_att_key"));
  part.Say("WEIGHTS", "pos_att_type",
           first ? "key is pos_proj, without bias; query is pos_q_proj; q is the sum of the query and q_bias"
           : shares.value_or(sew_d) ? "share_att_key: key is the layer's key_proj, query its query_proj"
                                    : "key is the layer's pos_key_proj, query its pos_query_proj");
  POSENC_ASSIGN_OR_RETURN(const auto width, config.Integer({"hidden_size"}));
  return ModelTerms{.settings = deberta,
                    .rows = 2 * deberta.position_buckets.value_or(deberta.max_relative_positions),
                    .width = width.value_or(0)};
}

// Conformers differ from Transformer-XL only in the layout of R, the relative encodings.
absl::StatusOr<ModelTerms> TransformerXlOf(Part& part, TransformerXlEncoding encoding) {
  TransformerXlSettings settings;
  settings.encoding = encoding;
  POSENC_ASSIGN_OR_RETURN(const auto width, part.config.Integer({"hidden_size", "d_model"}));
  return ModelTerms{.settings = settings, .width = width.value_or(0)};
}

absl::StatusOr<ModelTerms> XlnetOf(Part& part) {
  const ConfigObject& config = part.config;
  POSENC_ASSIGN_OR_RETURN(const auto both_ways, config.Bool("bi_data"));
  if (both_ways.value_or(false)) {
    return InvalidArgument("UNSUPPORTED", config.Path("bi_data"), "true",
                           "must be false: no method reverses the distances of half of a batch");
  }
  POSENC_ASSIGN_OR_RETURN(const std::string attention, Kind(part, "attn_type", "bi"));
  if (attention != "bi" && attention != "uni") {
    return InvalidArgument("UNKNOWN_VALUE", config.Path("attn_type"), attention, "must be bi or uni");
  }
  if (attention == "uni") part.Say("CAUSAL", "attn_type", "uni: keys after the query are masked: give a causal mask");
  part.Say("NOT_PART_OF_TERM", "", "given token types, the model also adds a segment term, which is not in the answer");
  POSENC_ASSIGN_OR_RETURN(ModelTerms terms, TransformerXlOf(part, TransformerXlEncoding::kHalves));
  POSENC_ASSIGN_OR_RETURN(std::get<TransformerXlSettings>(terms.settings).clamp_len, config.Length("clamp_len"));
  return terms;
}

absl::StatusOr<ModelTerms> FormerTransformerXlOf(Part& part) {
  const ConfigObject& config = part.config;
  POSENC_ASSIGN_OR_RETURN(const auto attention, config.Integer({"attn_type"}));
  if (attention.value_or(0) != 0) {
    return InvalidArgument("UNSUPPORTED", config.Path("attn_type"), fmt::format("{}", *attention), "must be 0");
  }
  part.Say("CAUSAL", "", "keys after the query are masked: give a causal mask");
  part.Say("TRANSFORMERS_4", "model_type", "no longer in transformers 5: read as in 4.57");
  POSENC_ASSIGN_OR_RETURN(ModelTerms terms, TransformerXlOf(part, TransformerXlEncoding::kHalves));
  auto& clamp_len = std::get<TransformerXlSettings>(terms.settings).clamp_len;
  POSENC_ASSIGN_OR_RETURN(clamp_len, config.Length("clamp_len"));
  if (config.Find("clamp_len") == nullptr) clamp_len = 1000;
  return terms;
}

ModelTerms ShawOf(ShawOrder order, bool clip, int64_t rows) {
  ShawSettings shaw;
  shaw.order = order;
  shaw.clip = clip;
  return {.settings = shaw, .rows = rows};
}

std::string_view DefaultKind(const Part& part) {
  return part.type.terms == Terms::kNamedConformer ? "relative" : "relative_key";
}

absl::StatusOr<ModelTerms> ConformerOf(Part& part) {
  const ConfigObject& config = part.config;
  POSENC_ASSIGN_OR_RETURN(const std::string kind, Kind(part, "position_embeddings_type", DefaultKind(part)));
  if (part.type.terms == Terms::kConformer || kind == "relative") {
    return TransformerXlOf(part, TransformerXlEncoding::kInterleaved);
  }
  POSENC_ASSIGN_OR_RETURN(const auto left, config.Integer({"left_max_position_embeddings"}));
  POSENC_ASSIGN_OR_RETURN(const auto right, config.Integer({"right_max_position_embeddings"}));
  const int64_t before = left.value_or(64), after = right.value_or(8);
  ModelTerms terms = ShawOf(ShawOrder::kKeyMinusQuery, true, before + after + 1);
  std::get<ShawSettings>(terms.settings).before = before;
  return terms;
}

absl::StatusOr<ModelTerms> BertOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const std::string kind, Kind(part, "position_embedding_type", "absolute"));
  POSENC_ASSIGN_OR_RETURN(const auto longest, part.config.Length("max_position_embeddings"));
  part.Say("TRANSFORMERS_4", "position_embedding_type",
           "relative keys are no longer in transformers 5: read as in 4.57");
  ModelTerms terms = ShawOf(ShawOrder::kQueryMinusKey, false, 2 * longest.value_or(part.type.learned->positions) - 1);
  std::get<ShawSettings>(terms.settings).key_term = kind == "relative_key_query";
  return terms;
}

absl::StatusOr<ModelTerms> NezhaOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto farthest, part.config.Length("max_relative_position"));
  part.Say("TRANSFORMERS_4", "model_type", "no longer in transformers 5: read as in 4.57");
  part.Say("WEIGHTS", "max_relative_position",
           "the table, for scores and for values, is the interleaved sinusoidal encoding of its row numbers");
  ModelTerms terms = ShawOf(ShawOrder::kKeyMinusQuery, true, 2 * farthest.value_or(64) + 1);
  terms.has_values = true;
  return terms;
}

absl::StatusOr<ModelTerms> SpeechT5Of(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto length, part.config.Length("encoder_max_relative_position"));
  part.Say("NOT_EVERYWHERE", "", "the encoder has this term; the decoder has none");
  ModelTerms terms = ShawOf(ShawOrder::kQueryMinusKey, true, 2 * length.value_or(160));
  std::get<ShawSettings>(terms.settings).before = length.value_or(160);
  return terms;
}

absl::StatusOr<ModelTerms> GemmaAudioOf(Part& part) {
  part.Say("SCALE", "per_dim_scale",
           "multiply q by the model's per-dimension scales and k by its key scale, if it has one; set scale to 1");
  part.Say("BLOCKS", "attention_chunk_size",
           "the model caps the sum of the scores and attends only within a window: give a mask");
  POSENC_ASSIGN_OR_RETURN(ModelTerms terms, TransformerXlOf(part, TransformerXlEncoding::kTensor2Tensor));
  terms.has_biases = false;
  return terms;
}

absl::StatusOr<ModelTerms> GraniteSpeechOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(auto farthest, part.config.Length("max_pos_emb"));
  if (!farthest) {
    POSENC_ASSIGN_OR_RETURN(farthest, part.config.Length("max_position_embeddings"));
  }
  part.Say("BLOCKS", "context_size", "queries attend only to the keys of their own block of context_size tokens");
  return ShawOf(ShawOrder::kQueryMinusKey, true, 2 * farthest.value_or(512) + 1);
}

absl::StatusOr<ModelTerms> VitsOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto window, part.config.Integer({"window_size"}));
  if (window && *window < 1) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("window_size"), fmt::format("{}", *window),
                           "must be at least 1");
  }
  part.Say(
      "WEIGHTS", "window_size",
      "the model adds nothing beyond the window: the table is its emb_rel_k (for values emb_rel_v) between two rows "
      "of zeros; the text encoder has this term");
  ModelTerms terms = ShawOf(ShawOrder::kKeyMinusQuery, true, 2 * window.value_or(4) + 3);
  terms.has_values = true;
  return terms;
}

absl::StatusOr<ModelTerms> SettingsOf(Part& part) {
  switch (part.type.terms) {
    case Terms::kNone:
    case Terms::kInkling1:
    case Terms::kInkling2:
    case Terms::kInkling2Loop: break;
    case Terms::kDeberta:
    case Terms::kDebertaV2:
    case Terms::kSewD: return DebertaOf(part);
    case Terms::kXlnet: return XlnetOf(part);
    case Terms::kTransformerXl: return FormerTransformerXlOf(part);
    case Terms::kConformer:
    case Terms::kNamedConformer:
    case Terms::kNamedShaw:
    case Terms::kShawOrConformer: return ConformerOf(part);
    case Terms::kBert: return BertOf(part);
    case Terms::kNezha: return NezhaOf(part);
    case Terms::kSpeechT5: return SpeechT5Of(part);
    case Terms::kGemmaAudio: return GemmaAudioOf(part);
    case Terms::kGraniteSpeech: return GraniteSpeechOf(part);
    case Terms::kVits: return VitsOf(part);
  }
  __builtin_unreachable();  // CheckTerms refuses kNone; Inkling: InklingLayersOf
}

}  // namespace

absl::Status CheckTerms(const Part& part) {
  switch (part.type.terms) {
    case Terms::kNone: return part.HasOther();
    case Terms::kDeberta:
    case Terms::kDebertaV2:
    case Terms::kSewD: {
      POSENC_ASSIGN_OR_RETURN(const auto relative, part.config.Bool("relative_attention"));
      if (!relative.value_or(IsSewD(part))) return SwitchedOff(part, "relative_attention", "false", "true");
      POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> types, AttentionTypes(part));
      if (types.empty()) return SwitchedOff(part, "pos_att_type", "", "c2p, p2c or both");
      return absl::OkStatus();
    }
    case Terms::kNamedConformer:
    case Terms::kNamedShaw:
    case Terms::kShawOrConformer: {
      POSENC_ASSIGN_OR_RETURN(const std::string kind, Kind(part, "position_embeddings_type", DefaultKind(part)));
      const bool has_both = part.type.terms == Terms::kShawOrConformer;
      if (kind == DefaultKind(part) || (has_both && kind == "relative")) return absl::OkStatus();
      return SwitchedOff(part, "position_embeddings_type", kind,
                         has_both ? "relative or relative_key" : DefaultKind(part));
    }
    case Terms::kVits: {
      const bool null = part.config.Find("window_size") == nullptr && part.config.tree().contains("window_size");
      return null ? SwitchedOff(part, "window_size", "null", "a number") : absl::OkStatus();
    }
    case Terms::kBert: {
      POSENC_ASSIGN_OR_RETURN(const std::string kind, Kind(part, "position_embedding_type", "absolute"));
      if (kind == "relative_key" || kind == "relative_key_query") return absl::OkStatus();
      return SwitchedOff(part, "position_embedding_type", kind, "relative_key or relative_key_query");
    }
    default: return absl::OkStatus();
  }
}

absl::StatusOr<ModelTerms> TermsOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(ModelTerms terms, SettingsOf(part));
  POSENC_ASSIGN_OR_RETURN(const auto heads, HeadsOf(part));
  POSENC_ASSIGN_OR_RETURN(terms.head_dim, HeadDimOf(part));
  if (!heads)
    return InvalidArgument("MISSING", part.config.Path("num_attention_heads"), "", "must be given in the file");
  terms.heads = *heads;
  return terms;
}

}  // namespace posenc
