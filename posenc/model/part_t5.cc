#include "posenc/model/part_t5.h"

#include "posenc/status.h"

namespace posenc {

absl::StatusOr<T5Settings> T5Of(Part& part) {
  const std::string& component = part.name;
  const std::optional<OneStack>& one = part.type.one_stack;
  const bool encoder = component.ends_with("encoder");
  if (!one && !encoder && component != "decoder") {
    return InvalidArgument("MISSING", "component", component,
                           "this file holds two stacks, with different buckets: say \"encoder\" or \"decoder\"");
  }
  T5Settings t5;
  t5.bidirectional = one ? one->bidirectional : encoder;
  if (one && !one->reads_buckets) return t5;
  POSENC_ASSIGN_OR_RETURN(t5.num_buckets, part.config.Integer({"relative_attention_num_buckets"}));
  POSENC_ASSIGN_OR_RETURN(t5.max_distance, part.config.Integer({"relative_attention_max_distance"}));
  if (one && one->scales_scores) return t5;
  part.Say("UNSCALED_SCORES", "component",
           "T5 adds its bias to q.k, which it does not scale by 1/sqrt(head_dim); its cross-attention has none");
  return t5;
}

}  // namespace posenc
