#include "posenc/model/parts.h"

#include "posenc/base/status.h"

namespace posenc {

absl::StatusOr<AlibiSettings> AlibiOf(Part& part) {
  const ConfigObject& config = part.config;
  AlibiSettings alibi;
  POSENC_ASSIGN_OR_RETURN(const auto heads, config.Integer({"num_attention_heads", "n_head", "n_heads"}));
  if (!heads) {
    return InvalidArgument("MISSING", config.Path("num_attention_heads"), "", "must be given: the number of heads");
  }
  alibi.num_heads = *heads;
  part.Comes("alibi.num_heads", config.PathOf({"num_attention_heads", "n_head", "n_heads"}));
  alibi.form = part.type.scheme == Scheme::kMptAlibi ? AlibiForm::kMpt : AlibiForm::kBloom;
  alibi.slopes = part.type.scheme == Scheme::kMptAlibi ? AlibiSlopeRule::kMpt : AlibiSlopeRule::kPowerOfTwo;
  if (part.type.scheme == Scheme::kMptAlibi) {
    POSENC_ASSIGN_OR_RETURN(const auto attention, config.Object("attn_config"));
    if (attention) {
      POSENC_ASSIGN_OR_RETURN(alibi.alibi_bias_max, attention->Number({"alibi_bias_max"}));
      part.Comes("alibi.alibi_bias_max", attention->Path("alibi_bias_max"));
      POSENC_ASSIGN_OR_RETURN(const auto rope, attention->Bool("rope"));
      if (rope.value_or(false)) {
        return Against(attention->Path("alibi"),
                       InvalidArgument("CONFLICT", attention->Path("rope"), "true", "must be false beside ALiBi"));
      }
    }
  }
  if (part.type.scheme == Scheme::kFalcon) {
    alibi.bias_dtype = DType::kBF16;
    part.Say("ADDED_BEFORE_SCALING", "alibi",
             "Falcon's bias is bfloat16 and is added to q.k before the scaling by 1/sqrt(head_dim)");
  }
  return alibi;
}

absl::StatusOr<bool> HasAlibi(const Part& part) {
  switch (part.type.scheme) {
    case Scheme::kBloomAlibi: return true;
    case Scheme::kFalcon: {
      POSENC_ASSIGN_OR_RETURN(const auto alibi, part.config.Bool("alibi"));
      return alibi.value_or(false);
    }
    case Scheme::kMptAlibi: {
      POSENC_ASSIGN_OR_RETURN(const auto attention, part.config.Object("attn_config"));
      std::optional<bool> alibi;
      if (attention) {
        POSENC_ASSIGN_OR_RETURN(alibi, attention->Bool("alibi"));
      }
      if (alibi.value_or(true)) return true;
      return InvalidArgument("UNSUPPORTED", attention->Path("alibi"), "false",
                             "must be true: without ALiBi, MPT's positions are a learned table");
    }
    default: return false;
  }
}

}  // namespace posenc
