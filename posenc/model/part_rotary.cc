#include "posenc/model/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

constexpr std::string_view kOriginalLength = "original_max_position_embeddings";
constexpr std::string_view kLongest = "max_position_embeddings";

// A number of the file, and its path.
struct Given {
  std::optional<double> value;
  std::string path;
};

// Notes an unused value: if the block and the outer file differ, transformers silently takes one of the two.
void NoteUnused(Part& part, const Given& used, const Given& unused) {
  if (!used.value || !unused.value || *used.value == *unused.value) return;
  part.Say("NOT_USED", unused.path,
           fmt::format("{} is ignored: {}, {}, is used", *unused.value, used.path, *used.value));
}

// Why a class does not read a field outside the block for these layers, for which it reads `own`.
std::string WhyNot(const ModelType& type, std::string_view own, std::string_view name) {
  const auto reads = [name](const LayerDefaults& layers) { return layers.theta_field == name; };
  const auto others = std::find_if(type.by_layer.begin(), type.by_layer.end(), reads);
  if (others != type.by_layer.end()) {
    return fmt::format("because model_type \"{}\" reads it for {} layers only", type.name, others->layer_type);
  }
  return fmt::format("because model_type \"{}\" reads {}", type.name, own.empty() ? "no such field" : own);
}

// Reads a field outside the block: under the known class's name for it, or, for an unknown class, under either name.
absl::StatusOr<Given> Outer(Part& part, std::string_view own, std::string_view usual, std::string_view older) {
  if (!part.known) {
    POSENC_ASSIGN_OR_RETURN(const auto value, part.config.Number({usual, older}));
    return Given{value, part.config.PathOf({usual, older})};
  }
  const std::string_view other = own == usual ? older : usual;
  if (part.config.Has(other)) {
    part.Say("NOT_USED", std::string(other), fmt::format("ignored, {}", WhyNot(part.type, own, other)));
  }
  if (own.empty()) return Given{};
  POSENC_ASSIGN_OR_RETURN(const auto value, part.config.Number({own}));
  return Given{value, part.config.Path(own)};
}

// Notes a factor that is not the ratio of the lengths. transformers then uses the factor, and warns.
absl::Status NoteContradiction(Part& part, const RopeBlock& block) {
  const RopeParameters& p = block.parameters;
  if ((p.rope_type != "yarn" && p.rope_type != "longrope") || !p.factor || !p.original_max_position_embeddings) {
    return absl::OkStatus();
  }
  POSENC_ASSIGN_OR_RETURN(const auto longest, part.config.Number({kLongest}));
  const double original = *p.original_max_position_embeddings;
  if (!longest || *longest == original || *longest == *p.factor * original) return absl::OkStatus();
  part.Say("LENGTHS_DISAGREE", fmt::format("{}.factor", block.path),
           fmt::format(
               "{} times original_max_position_embeddings, {}, is not {}, {}: the factor is used, as in transformers",
               *p.factor, original, part.config.Path(kLongest), *longest));
  return absl::OkStatus();
}

// Reads the share of a head that rotates from a number of elements, for classes that know such a field, unless the
// share is given.
absl::Status ReadRotaryDim(Part& part, const Given& given, RopeParameters& p) {
  POSENC_ASSIGN_OR_RETURN(const auto elements, part.config.Number({part.type.rotary_dim_field}));
  if (!elements) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
  if (given.value) {
    const Given share{*elements / static_cast<double>(head_dim), part.config.Path(part.type.rotary_dim_field)};
    NoteUnused(part, given, share);
    return absl::OkStatus();
  }
  p.partial_rotary_factor = *elements / static_cast<double>(head_dim);
  part.Comes("rope_parameters.partial_rotary_factor", part.config.Path(part.type.rotary_dim_field));
  return absl::OkStatus();
}

// Returns UNSUPPORTED for a rope_type that the class refuses.
absl::Status CheckRopeType(const Part& part, const RopeBlock& block) {
  const auto& accepted = part.type.rope_types;
  const std::string& given = block.parameters.rope_type;
  if (accepted.empty() || std::find(accepted.begin(), accepted.end(), given) != accepted.end()) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", fmt::format("{}.{}", block.path, block.type_key), given,
                         fmt::format("must be one of \"{}\": model_type \"{}\" refuses other scalings",
                                     fmt::join(accepted, "\", \""), part.type.name));
}

// Moves fields outside the block into it, as transformers' standardize_rope_params does.
absl::Status Standardize(Part& part, RopeBlock& block, const BlockContext& context) {
  const ConfigObject& config = part.config;
  RopeParameters& p = block.parameters;
  const auto in_block = [&block](std::string_view name) { return fmt::format("{}.{}", block.path, name); };
  part.Comes("rope_parameters", block.path);
  part.Comes("rope_parameters.rope_type", in_block(block.type_key));
  if (part.type.rules.block != nullptr) POSENC_RETURN_IF_ERROR(part.type.rules.block(part, block));
  POSENC_RETURN_IF_ERROR(CheckRopeType(part, block));

  Given outer_theta, outer_partial;
  if (!block.complete) {
    POSENC_ASSIGN_OR_RETURN(outer_theta, Outer(part, context.theta_field, "rope_theta", "rotary_emb_base"));
  }
  NoteUnused(part, {p.rope_theta, in_block("rope_theta")}, outer_theta);
  if (!p.rope_theta) {
    p.rope_theta = outer_theta.value.value_or(context.class_theta);
    if (outer_theta.value) part.Comes("rope_parameters.rope_theta", outer_theta.path);
  }

  if (!block.complete) {
    POSENC_ASSIGN_OR_RETURN(outer_partial, Outer(part, part.type.partial_field, "partial_rotary_factor", "rotary_pct"));
  }
  if (p.partial_rotary_factor) {
    part.Comes("rope_parameters.partial_rotary_factor", in_block("partial_rotary_factor"));
  }
  NoteUnused(part, {p.partial_rotary_factor, in_block("partial_rotary_factor")}, outer_partial);
  const Given partial =
      p.partial_rotary_factor ? Given{p.partial_rotary_factor, in_block("partial_rotary_factor")} : outer_partial;
  POSENC_RETURN_IF_ERROR(ReadRotaryDim(part, partial, p));
  if (!p.partial_rotary_factor) {
    const std::string name(part.type.partial_field);
    const bool is_null = part.known && !block.complete && config.tree().contains(name) &&
                         !outer_partial.value;  // instead of the default
    p.partial_rotary_factor = outer_partial.value.value_or(is_null ? 1 : part.type.partial.value_or(1));
    if (outer_partial.value) part.Comes("rope_parameters.partial_rotary_factor", outer_partial.path);
  }

  if (p.rope_type == "llama3" || p.rope_type == "yarn" || p.rope_type == "longrope") {
    POSENC_ASSIGN_OR_RETURN(const auto outer, config.Number({kOriginalLength}));
    if (context.flat && outer) {
      NoteUnused(part, {outer, config.Path(kOriginalLength)},
                 {p.original_max_position_embeddings, in_block(kOriginalLength)});
      p.original_max_position_embeddings = outer;
      part.Comes("rope_parameters.original_max_position_embeddings", config.Path(kOriginalLength));
    }
    if (!p.original_max_position_embeddings) {
      POSENC_ASSIGN_OR_RETURN(const auto longest, config.Number({kLongest, "n_positions", "max_seq_len"}));
      p.original_max_position_embeddings = longest;
      part.Say("DEFAULTED", in_block(kOriginalLength), "absent: max_position_embeddings is used");
      if (longest) {
        part.Comes("rope_parameters.original_max_position_embeddings",
                   config.PathOf({kLongest, "n_positions", "max_seq_len"}));
      }
    }
  }
  if (p.rope_type == "yarn") {
    if (!block.has_factor) {
      return InvalidArgument("MISSING", in_block("factor"), "",
                             "must be given with rope_type \"yarn\"; null: it is computed from the lengths");
    }
    if (!context.flat) {
      if (p.truncate && *p.truncate != block.truncate_beside.value_or(true)) {
        part.Say("NOT_USED", in_block("truncate"),
                 fmt::format("not read from a layer type's block: {} is used", block.truncate_beside.value_or(true)));
      }
      p.truncate = block.truncate_beside;
    }
    for (auto& [name, field] : {std::pair{"beta_fast", &p.beta_fast}, {"beta_slow", &p.beta_slow}}) {
      if (*field == 0.0) {
        part.Say("DEFAULTED", in_block(name), "0 means the default");
        field->reset();
      }
    }
  }
  return NoteContradiction(part, block);
}

// Sets Part::whole_head. The rotated part of a head is its first elements, and with multi-head latent attention its
// last.
absl::Status ReadWholeHead(Part& part, int64_t head_dim) {
  part.whole_head = head_dim;
  if (!part.type.unrotated_dim) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(part.rotary_offset, UnrotatedDimOf(part));
  part.whole_head += part.rotary_offset;
  return absl::OkStatus();
}

// An odd share of the head rotates one element more, with the frequencies of the odd width, as in transformers. The
// classes that cut the head at the odd width fail, and so do formulas that count pairs; they keep the odd width, which
// is refused.
void RoundUpWidth(Part& part, RotarySettings& settings, RopeParameters& p) {
  if (part.type.cuts_head) return;
  const bool fits = p.rope_type == "default" || p.rope_type == "linear" || p.rope_type == "dynamic" ||
                    p.rope_type == "llama3" || p.rope_type == "longrope";
  const double partial = p.partial_rotary_factor.value_or(1);
  if (!part.known || !part.type.partial || part.type.unrotated_dim || !fits || !p.mrope_section.empty()) return;
  if (!(partial > 0 && partial < 1)) return;
  const auto width = static_cast<int64_t>(static_cast<double>(*settings.head_dim) * partial);
  if (width % 2 == 0 || width < 3 || width >= *settings.head_dim) return;
  part.Say("WIDTH_ROUNDED_UP", PathOf(part, "partial_rotary_factor"),
           fmt::format("{} of {} elements are {}: {} rotate, with the frequencies of a width of {}", partial,
                       *settings.head_dim, width, width + 1, width));
  settings.rotary_dim = width + 1;
  settings.head_dim.reset();
  p.frequency_dim = static_cast<double>(width);
  p.partial_rotary_factor.reset();
}

}  // namespace

std::string PathOf(const Part& part, std::string_view name) {
  const std::string setting = fmt::format("rope_parameters.{}", name);
  std::string path = part.config.Path(name);
  for (const FileField& field : part.fields) {
    if (field.setting == setting) path = field.path;
  }
  return path;
}

absl::StatusOr<int64_t> UnrotatedDimOf(const Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto rest, part.config.Integer({"qk_nope_head_dim"}));
  return part.layer_unrotated_dim.value_or(rest.value_or(*part.type.unrotated_dim));
}

absl::Status NarrowerTables(const Part& part, const RopeParameters& p) {
  return InvalidArgument("UNSUPPORTED", PathOf(part, "partial_rotary_factor"),
                         fmt::format("{}", *p.partial_rotary_factor),
                         fmt::format("must be 1: model_type \"{}\" computes narrower tables for rope_type \"{}\", "
                                     "but fails when it applies them",
                                     part.type.name, Quote(p.rope_type)));
}

void NoteNulls(Part& part) {
  const ModelType& type = part.type;
  std::vector<std::string_view> names = {"num_hidden_layers",
                                         "decoder_num_hidden_layers",
                                         "depth",
                                         "n_layer",
                                         "n_layers",
                                         "num_layers",
                                         "encoder_num_attention_heads",
                                         "num_attention_heads",
                                         "partial_rotary_factor",
                                         "head_dim",
                                         "global_head_dim",
                                         "qk_rope_head_dim",
                                         "qk_nope_head_dim",
                                         "rope_theta",
                                         "image_size",
                                         "patch_size",
                                         kLongest,
                                         kOriginalLength};
  names.insert(names.end(), {type.hidden_size_field, type.heads_field, type.theta_field, type.pattern.field});
  names.insert(names.end(), type.rules.fields.begin(), type.rules.fields.end());
  if (type.head_dim != 0) names.push_back(type.head_dim_field);
  if (type.query_scale == QueryScaleFunction::kLlama4) {
    names.insert(names.end(), {"attn_temperature_tuning", "attn_scale", "floor_scale"});
  }
  for (const LayerDefaults& own : type.by_layer) names.push_back(own.theta_field);
  for (std::string_view name : names) {
    const bool is_null =
        !name.empty() && part.config.tree().contains(std::string(name)) && part.config.Find(name) == nullptr;
    if (!is_null || (name == "head_dim" && type.head_dim == 0)) continue;
    const std::string path = part.config.Path(name);
    const auto same = [&path](const Note& note) { return note.field == path; };
    if (std::any_of(part.notes.begin(), part.notes.end(), same)) continue;
    part.Say("DEFAULTED", std::string(name), "null: read as if it were absent");
  }
}

void NoteNulls(Part& part, const RopeBlock& block) {
  const bool from_lengths = block.parameters.rope_type == "yarn" || block.parameters.rope_type == "longrope";
  for (const std::string& name : block.nulls) {
    if (name == "factor" && from_lengths) continue;
    part.Say("DEFAULTED", fmt::format("{}.{}", block.path, name), "null: read as if it were absent");
  }
  for (const std::string& path : block.beside) {
    part.Say("NOT_USED", path, "ignored: it lies beside the layer types' blocks, and their own fields are read");
  }
}

absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, const BlockContext& context) {
  NoteNulls(part, block);
  POSENC_RETURN_IF_ERROR(Standardize(part, block, context));
  RotarySettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.query_scale, QueryScaleOf(part, &block));
  RopeParameters& p = block.parameters;
  POSENC_ASSIGN_OR_RETURN(settings.head_dim, HeadDimOf(part));
  POSENC_RETURN_IF_ERROR(ReadWholeHead(part, *settings.head_dim));
  if (part.type.rules.settings != nullptr) POSENC_RETURN_IF_ERROR(part.type.rules.settings(part, settings, p));
  const RopeMethod* method = FindRopeMethod(p.rope_type);
  const auto reads = [method](std::string_view name) { return method != nullptr && Reads(*method, name); };
  if (settings.query_scale && !reads(kOriginalLength)) p.original_max_position_embeddings.reset();
  const bool narrows = p.partial_rotary_factor.value_or(1) != 1 && !reads("partial_rotary_factor");
  if (part.type.cuts_head && p.rope_type == "proportional" &&
      (part.type.unrotated_dim || p.partial_rotary_factor.value_or(1) != 1)) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.{}", block.path, block.type_key), p.rope_type,
                           fmt::format("must be another scaling: model_type \"{}\" computes tables for the whole head, "
                                       "but fails when it applies them to a part",
                                       part.type.name));
  }
  if (part.type.unrotated_dim && part.type.partial) {
    p.partial_rotary_factor.reset();  // a share of the whole head; qk_rope_head_dim already gives it
  } else if (narrows && !part.type.partial) {
    if (p.rope_type != "default") return NarrowerTables(part, p);
    part.Say("NOT_USED", PathOf(part, "partial_rotary_factor"),
             fmt::format("model_type \"{}\" does not read it for rope_type \"default\"", part.type.name));
    p.partial_rotary_factor.reset();
  }
  if (reads(kLongest) && !settings.max_position_embeddings) {
    const std::string path = part.config.PathOf({kLongest, "n_positions", "max_seq_len", "model_max_length"});
    part.Comes(std::string(kLongest), path);
    part.Comes(fmt::format("rope_parameters.{}", kLongest), path);
    POSENC_ASSIGN_OR_RETURN(
        settings.max_position_embeddings,
        part.config.Number({"max_position_embeddings", "n_positions", "max_seq_len", "model_max_length"}));
  }
  if (part.type.mrope != MropeOrder::kNone) {
    p.mrope_order = part.type.mrope;
    if (p.mrope_section.empty()) p.mrope_section = part.type.sections;
    if (p.mrope_section.empty() && p.mrope_order == MropeOrder::kErnie) {
      const double partial = p.partial_rotary_factor.value_or(1);
      const int64_t rotary_dim =
          partial > 0 && partial <= 1 ? static_cast<int64_t>(static_cast<double>(*settings.head_dim) * partial) : 0;
      if (rotary_dim == 0 || rotary_dim % 4 != 0) {
        return InvalidArgument("OUT_OF_RANGE", PathOf(part, "partial_rotary_factor"), fmt::format("{}", partial),
                               fmt::format("must be above 0 and at most 1, and rotate a multiple of 4 of the head's {} "
                                           "elements, because two axes share them",
                                           *settings.head_dim));
      }
      p.mrope_section = {rotary_dim / 4, rotary_dim / 4, 0};
    }
  }
  if (!part.type.note.empty()) part.Say("POSITIONS", "", std::string(part.type.note));
  RoundUpWidth(part, settings, p);
  settings.frequencies = std::move(p);
  settings.input_pairing = part.type.pairing;
  settings.output_pairing = part.type.output_pairing;
  return settings;
}

}  // namespace posenc
