#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {

absl::StatusOr<std::optional<int64_t>> HeadsOf(const Part& part) {
  if (!part.type.heads_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto own, part.config.Integer({part.type.heads_field}));
    if (own || part.type.width.num_attention_heads == 0) return own;
    return part.type.width.num_attention_heads;
  }
  POSENC_ASSIGN_OR_RETURN(const auto heads,
                          part.config.Integer({"num_attention_heads", "n_head", "n_heads", "num_heads", "heads",
                                               "speech_encoder_attention_heads", "encoder_attention_heads",
                                               "encoder_num_attention_heads", "decoder_num_attention_heads",
                                               "conf_num_attention_heads", "memory_attention_num_attention_heads"}));
  if (heads || part.type.width.num_attention_heads == 0) return heads;
  return part.type.width.num_attention_heads;
}

std::vector<double> TableHeadsOf(const Part& part) {
  constexpr size_t kMostStages = 16;
  std::vector<double> heads;
  const nlohmann::json* given = part.config.Find("num_heads");
  if (given == nullptr) given = part.config.Find("num_attention_heads");
  if (given == nullptr) return heads;
  const bool is_list = given->is_array();
  const size_t stages = is_list ? given->size() : 1;
  if (stages > kMostStages) return heads;
  for (size_t n = 0; n < stages; ++n) {
    const nlohmann::json& number = is_list ? (*given)[n] : *given;
    if (!number.is_number()) return {};
    heads.push_back(number.get<double>());
  }
  return heads;
}

absl::StatusOr<int64_t> HeadDimOf(Part& part) {
  const ConfigObject& config = part.config;
  const ModelType& type = part.type;
  if (part.layer_head_dim) return *part.layer_head_dim;  // ReadHeadDim says where it comes from
  const std::string_view field = type.unrotated_dim ? "qk_rope_head_dim" : type.head_dim_field;
  POSENC_ASSIGN_OR_RETURN(const auto width, config.Integer({field}));
  if (!field.empty()) part.Comes("head_dim", config.PathOf({field}));
  if (width) return *width;
  // A null head_dim does not stand for the class's default.
  const bool given_null = config.tree().contains(std::string(field));
  if (type.head_dim != 0 && !given_null) return type.head_dim;
  const auto hidden_names = {type.hidden_size_field, std::string_view("n_embd"), std::string_view("d_model"),
                             std::string_view("width")};
  POSENC_ASSIGN_OR_RETURN(auto hidden, config.Integer(hidden_names));
  POSENC_ASSIGN_OR_RETURN(auto heads, HeadsOf(part));
  if (!hidden && type.width.hidden_size != 0) hidden = type.width.hidden_size;
  if (!hidden || !heads || *heads == 0) {
    return InvalidArgument("MISSING", config.Path(field.empty() ? type.hidden_size_field : type.head_dim_field), "",
                           fmt::format("must be given, or {} and num_attention_heads above 0", type.hidden_size_field));
  }
  int64_t computed = *hidden / *heads;
  if (type.rules.head_dim != nullptr) {
    POSENC_ASSIGN_OR_RETURN(computed, type.rules.head_dim(part, *hidden, *heads));
  }
  POSENC_ASSIGN_OR_RETURN(const auto unread, config.Integer({field.empty() ? "head_dim" : ""}));
  if (unread && *unread != computed) {
    part.Say("NOT_USED", "head_dim",
             fmt::format("{} is ignored: model_type \"{}\" computes the width, {}", *unread, type.name, computed));
  }
  const std::string hidden_path = config.PathOf(hidden_names);
  const std::string heads_path =
      config.PathOf({type.heads_field, "num_attention_heads", "n_head", "n_heads", "num_heads", "heads"});
  if (*hidden % *heads != 0) {
    part.Say("ROUNDED_DOWN", hidden_path,
             fmt::format("{} is not a multiple of the {} heads ({}): head_dim is rounded down to {}", *hidden, *heads,
                         heads_path, *hidden / *heads));
  }
  part.Comes("head_dim", hidden_path, heads_path);
  return computed;
}

}  // namespace posenc
