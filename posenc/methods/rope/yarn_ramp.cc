#include "posenc/methods/rope/yarn_ramp.h"

#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {

absl::Status CompleteYarn(RopeParameters& p, std::string_view rope_type) {
  POSENC_RETURN_IF_ERROR(Require("original_max_position_embeddings", p.original_max_position_embeddings, rope_type));
  POSENC_RETURN_IF_ERROR(CheckPositive("original_max_position_embeddings", *p.original_max_position_embeddings));
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, rope_type));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("factor", *p.factor, 1));
  if (*p.rope_theta == 1) {
    return InvalidArgument("OUT_OF_RANGE", "rope_theta", "1",
                           fmt::format("must not be 1: rope_type \"{}\" divides by ln(rope_theta)", rope_type));
  }
  if (!p.beta_fast) p.beta_fast = 32;
  if (!p.beta_slow) p.beta_slow = 1;
  POSENC_RETURN_IF_ERROR(CheckPositive("beta_slow", *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("beta_fast", *p.beta_fast, *p.beta_slow));
  POSENC_RETURN_IF_ERROR(RequireAtLeast("mscale", p.mscale.value_or(0), 0));
  return RequireAtLeast("mscale_all_dim", p.mscale_all_dim.value_or(0), 0);
}

}  // namespace posenc
