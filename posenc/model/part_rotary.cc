#include "posenc/model/parts.h"

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

// Notes an unused value: if the block and the outer file differ, transformers silently takes one of the two.
void NoteUnused(Part& part, std::string_view name, const std::optional<double>& used,
                const std::optional<double>& unused, std::string_view where) {
  if (!used || !unused || *used == *unused) return;
  part.Say("NOT_USED", std::string(name), fmt::format("{}, {}, is ignored: {} is used", where, *unused, *used));
}

// Reads a field outside the block: under the known class's name for it, or, for an unknown class, under either name.
absl::StatusOr<std::optional<double>> Outer(Part& part, std::string_view own, std::string_view usual,
                                            std::string_view older) {
  if (!part.known) return part.config.Number({usual, older});
  const std::string_view other = own == usual ? older : usual;
  if (part.config.Find(other) != nullptr) {
    part.Say("NOT_USED", std::string(other),
             fmt::format("ignored, because model_type \"{}\" reads {}", part.type.name,
                         own.empty() ? "no such field" : own));
  }
  if (own.empty()) return std::optional<double>();
  return part.config.Number({own});
}

// Moves fields outside the block into it, as transformers' standardize_rope_params does.
absl::Status Standardize(Part& part, RopeBlock& block, const BlockContext& context) {
  const ConfigObject& config = part.config;
  RopeParameters& p = block.parameters;
  if ((part.type.name == "phi3" || part.type.name == "phi4_multimodal") &&
      (p.rope_type == "su" || p.rope_type == "yarn")) {
    part.Say("RENAMED", "rope_type", fmt::format("Phi-3 reads \"{}\" as \"longrope\"", p.rope_type));
    p.rope_type = "longrope";
  }

  if (part.type.name.starts_with("hunyuan_v1") && p.rope_type == "dynamic" && p.alpha.value_or(0) != 0) {
    part.Say("RENAMED", "rope_type",
             "Hunyuan reads \"dynamic\" with an alpha as \"ntk_alpha\": only alpha and rope_theta are used");
    const RopeParameters written = std::move(p);
    p = {.rope_type = "ntk_alpha", .rope_theta = written.rope_theta};
    p.alpha = written.alpha;
  }

  POSENC_ASSIGN_OR_RETURN(const auto outer_theta, Outer(part, context.theta_field, "rope_theta", "rotary_emb_base"));
  NoteUnused(part, "rope_theta", p.rope_theta, outer_theta, "the value outside the block");
  if (!p.rope_theta) p.rope_theta = outer_theta.value_or(context.class_theta);

  POSENC_ASSIGN_OR_RETURN(const auto outer_partial,
                          Outer(part, part.type.partial_field, "partial_rotary_factor", "rotary_pct"));
  NoteUnused(part, "partial_rotary_factor", p.partial_rotary_factor, outer_partial, "the value outside the block");
  if (!p.partial_rotary_factor) p.partial_rotary_factor = outer_partial.value_or(part.type.partial.value_or(1));

  if (p.rope_type == "llama3" || p.rope_type == "yarn" || p.rope_type == "longrope") {
    POSENC_ASSIGN_OR_RETURN(auto outer, config.Number({"original_max_position_embeddings"}));
    if (!outer && part.type.original_length != 0) {
      outer = part.type.original_length;
      part.Say("DEFAULTED", "original_max_position_embeddings",
               fmt::format("absent outside the block, where model_type \"{}\" reads it: {} is used", part.type.name,
                           *outer));
    }
    if (context.flat && outer) {
      NoteUnused(part, "original_max_position_embeddings", outer, p.original_max_position_embeddings,
                 "the block's value");
      p.original_max_position_embeddings = outer;
    }
    if (!p.original_max_position_embeddings) {
      POSENC_ASSIGN_OR_RETURN(const auto longest, config.Number({"max_position_embeddings"}));
      p.original_max_position_embeddings = longest;
      part.Say("DEFAULTED", "original_max_position_embeddings", "absent: max_position_embeddings is used");
    }
  }
  if (p.rope_type == "yarn") {
    if (!block.has_factor) {
      return InvalidArgument("MISSING", "factor", "",
                             "required by rope_type \"yarn\"; null: it is computed from the lengths");
    }
    if (!context.flat && p.truncate) {
      part.Say("NOT_USED", "truncate", "not read from a layer type's block: true is used");
      p.truncate.reset();
    }
    for (auto& [name, field] : {std::pair{"beta_fast", &p.beta_fast}, {"beta_slow", &p.beta_slow}}) {
      if (*field == 0.0) {
        part.Say("DEFAULTED", name, "0 means the default");
        field->reset();
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, const BlockContext& context) {
  POSENC_RETURN_IF_ERROR(Standardize(part, block, context));
  if (block.has_query_scale) {
    part.Say("NOT_PART_OF_ROTATION", std::string(part.type.query_scale_field),
             "the model also multiplies its queries by 1 + this * ln(1 + floor(position / "
             "original_max_position_embeddings)); the answer does not");
  }
  RopeParameters& p = block.parameters;
  RotarySettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.head_dim, HeadDimOf(part));
  const RopeMethod* method = FindRopeMethod(p.rope_type);
  const auto reads = [method](std::string_view name) { return method != nullptr && Reads(*method, name); };
  const bool narrows = p.partial_rotary_factor.value_or(1) != 1 && !reads("partial_rotary_factor");
  if (part.type.mla) {
    p.partial_rotary_factor.reset();  // a share of the whole head; qk_rope_head_dim already gives it
  } else if (!part.type.partial && narrows) {
    if (p.rope_type != "default") {
      return InvalidArgument("UNSUPPORTED", "partial_rotary_factor", fmt::format("{}", *p.partial_rotary_factor),
                             fmt::format("must be 1: model_type \"{}\" computes narrower tables for rope_type \"{}\", "
                                         "but fails when it applies them",
                                         part.type.name, Quote(p.rope_type)));
    }
    part.Say("NOT_USED", "partial_rotary_factor",
             fmt::format("model_type \"{}\" does not read it for rope_type \"default\"", part.type.name));
    p.partial_rotary_factor.reset();
  }
  if (reads("max_position_embeddings")) {
    POSENC_ASSIGN_OR_RETURN(
        settings.max_position_embeddings,
        part.config.Number({"max_position_embeddings", "n_positions", "max_seq_len", "model_max_length"}));
  }
  if (part.type.negate_angle) p.negate_angle = true;
  if (part.type.mrope != MropeOrder::kNone) {
    p.mrope_order = part.type.mrope;
    if (p.mrope_section.empty()) p.mrope_section = part.type.sections;
    if (p.mrope_section.empty() && p.mrope_order == MropeOrder::kErnie) {
      const double partial = p.partial_rotary_factor.value_or(1);
      const int64_t rotary_dim =
          partial > 0 && partial <= 1 ? static_cast<int64_t>(static_cast<double>(*settings.head_dim) * partial) : 0;
      if (rotary_dim == 0 || rotary_dim % 4 != 0) {
        return InvalidArgument("OUT_OF_RANGE", "partial_rotary_factor", fmt::format("{}", partial),
                               fmt::format("must be above 0 and at most 1, and rotate a multiple of 4 of the head's {} "
                                           "elements, because two axes share them",
                                           *settings.head_dim));
      }
      p.mrope_section = {rotary_dim / 4, rotary_dim / 4, 0};
    }
  }
  if (!part.type.note.empty()) part.Say("POSITIONS", "", std::string(part.type.note));
  settings.frequencies = std::move(p);
  settings.input_pairing = part.type.pairing;
  settings.output_pairing = part.type.output_pairing;
  return settings;
}

}  // namespace posenc
