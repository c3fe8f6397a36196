#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

// Adds the number of a field of the file, or its default, as a parameter of the scale.
absl::Status Take(Part& part, std::string_view name, double otherwise, std::optional<double>& parameter) {
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Number({name}));
  parameter = given.value_or(otherwise);
  part.Comes(fmt::format("query_scale.{}", name), part.config.Path(name));
  return absl::OkStatus();
}

// As the classes' `if`: false, 0 and null are not true. Llama 4's first files have a number.
absl::StatusOr<bool> IsTrue(const Part& part, std::string_view name, bool otherwise) {
  const nlohmann::json* field = part.config.Find(name);
  if (field != nullptr && field->is_number()) return field->get<double>() != 0;
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Bool(name));
  return given.value_or(otherwise && !part.config.IsNull(name));
}

absl::StatusOr<std::optional<QueryScale>> Llama4(Part& part) {
  constexpr std::string_view kSwitch = "attn_temperature_tuning";
  POSENC_ASSIGN_OR_RETURN(const bool is_on, IsTrue(part, kSwitch, true));
  QueryScale scale{.function = QueryScaleFunction::kLlama4, .position_source = PositionSource::kCacheIndex};
  POSENC_RETURN_IF_ERROR(Take(part, "attn_scale", 0.1, scale.attn_scale));
  POSENC_RETURN_IF_ERROR(Take(part, "floor_scale", 8192, scale.floor_scale));
  if (!is_on) return std::nullopt;
  part.Say(
      std::string(kQueryScaleNote), std::string(kSwitch),
      "q is multiplied by 1 + attn_scale * ln(1 + floor((index in the cache + 1) / floor_scale)), as in the model: "
      "do not multiply it again");
  return scale;
}

absl::StatusOr<std::optional<QueryScale>> Qwen(Part& part) {
  constexpr std::string_view kSwitch = "use_logn_attn";
  POSENC_ASSIGN_OR_RETURN(const bool is_on, IsTrue(part, kSwitch, false));
  QueryScale scale{
      .function = QueryScaleFunction::kLogn, .position_source = PositionSource::kCacheIndex, .rounds_factor = true};
  POSENC_RETURN_IF_ERROR(Take(part, "seq_length", 8192, scale.seq_length));
  if (!is_on) return std::nullopt;
  part.Say(std::string(kQueryScaleNote), std::string(kSwitch),
           "q is multiplied by ln(index in the cache + 1) / ln(seq_length) beyond seq_length, as in the model: do not "
           "multiply it again");
  return scale;
}

std::optional<QueryScale> Beam(Part& part) {
  part.Say(std::string(kQueryScaleNote), "model_type",
           "q is multiplied by (1 + (position + 1) / 2048)^0.1, as in the model: do not multiply it again");
  return QueryScale{.function = QueryScaleFunction::kBeam};
}

std::optional<QueryScale> Ministral3(Part& part, const RopeBlock& block) {
  constexpr std::string_view kField = "llama_4_scaling_beta", kLength = "original_max_position_embeddings";
  if (!block.llama_4_scaling_beta) {
    part.Say(std::string(kCannotRun), fmt::format("{}.{}", block.path, kField),
             fmt::format("absent: model_type \"{}\" multiplies q by it, and fails in its first forward: q is not "
                         "multiplied here",
                         part.type.name));
    return std::nullopt;
  }
  part.Say(std::string(kQueryScaleNote), fmt::format("{}.{}", block.path, kField),
           "q is multiplied by 1 + this * ln(1 + floor(position / original_max_position_embeddings)), as in the model: "
           "do not multiply it again");
  part.Comes(fmt::format("query_scale.{}", kField), fmt::format("{}.{}", block.path, kField));
  part.Comes(fmt::format("query_scale.{}", kLength), fmt::format("{}.{}", block.path, kLength));
  return QueryScale{.function = QueryScaleFunction::kMinistral3,
                    .llama_4_scaling_beta = block.llama_4_scaling_beta,
                    .original_max_position_embeddings = block.parameters.original_max_position_embeddings,
                    .rounds_factor = true};
}

}  // namespace

absl::StatusOr<std::optional<QueryScale>> QueryScaleOf(Part& part, const RopeBlock* block) {
  const auto& function = part.type.query_scale;
  if (!function) return std::nullopt;
  switch (*function) {
    case QueryScaleFunction::kLlama4:
      if (block != nullptr) return std::nullopt;
      return Llama4(part);
    case QueryScaleFunction::kBeam:
      if (block != nullptr) return std::nullopt;
      return Beam(part);
    case QueryScaleFunction::kMinistral3:
      if (block == nullptr) return std::nullopt;
      return Ministral3(part, *block);
    case QueryScaleFunction::kLogn: return Qwen(part);
    case QueryScaleFunction::kInkling: return std::nullopt;  // its files select a score term
  }
  __builtin_unreachable();
}

}  // namespace posenc
