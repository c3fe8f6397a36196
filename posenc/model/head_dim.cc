#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {
namespace {

// Applies HeadShare to hidden / heads.
absl::StatusOr<int64_t> ShareOf(const Part& part, int64_t hidden, int64_t heads) {
  const HeadShare& share = part.type.share;
  std::optional<int64_t> given;
  if (!share.divisor_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(given, part.config.Integer({share.divisor_field}));
  }
  const int64_t divisor = given.value_or(1);
  if (divisor < 1) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(share.divisor_field), fmt::format("{}", divisor),
                           "must be at least 1");
  }
  return std::max(hidden / heads / share.divisor / divisor, share.least);
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> HeadsOf(const Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto heads,
                          part.config.Integer({"num_attention_heads", "n_head", "n_heads", "num_heads", "heads",
                                               "speech_encoder_attention_heads", "encoder_attention_heads",
                                               "encoder_num_attention_heads", "decoder_num_attention_heads",
                                               "conf_num_attention_heads", "memory_attention_num_attention_heads"}));
  if (heads || part.type.width.num_attention_heads == 0) return heads;
  return part.type.width.num_attention_heads;
}

absl::StatusOr<int64_t> HeadDimOf(const Part& part) {
  const ConfigObject& config = part.config;
  const ModelType& type = part.type;
  if (part.layer_head_dim) return *part.layer_head_dim;
  const std::string_view field = type.mla ? "qk_rope_head_dim" : type.head_dim_field;
  POSENC_ASSIGN_OR_RETURN(const auto width, config.Integer({field}));
  if (width) return *width;
  // A null head_dim does not stand for the class's default.
  const bool given_null = config.tree().contains(std::string(field));
  if (type.head_dim != 0 && !given_null) return type.head_dim;
  POSENC_ASSIGN_OR_RETURN(auto hidden, config.Integer({type.hidden_size_field, "n_embd", "d_model", "width"}));
  POSENC_ASSIGN_OR_RETURN(const auto heads, HeadsOf(part));
  if (!hidden && type.width.hidden_size != 0) hidden = type.width.hidden_size;
  if (!hidden || !heads || *heads == 0) {
    return InvalidArgument("MISSING", config.Path("head_dim"), "",
                           "the file must hold head_dim, or hidden_size and num_attention_heads above 0");
  }
  return ShareOf(part, *hidden, *heads);
}

}  // namespace posenc
