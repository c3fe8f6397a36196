#include "posenc/model/part_t5.h"

#include "posenc/status.h"

namespace posenc {
namespace {

// UDOP's list of biases: one of the tokens' distance may have arguments of its own, which no settings can say.
absl::Status CheckBiasArguments(const ConfigObject& config) {
  const nlohmann::json* biases = config.Find("relative_bias_args");
  if (biases == nullptr || !biases->is_array()) return absl::OkStatus();
  for (const nlohmann::json& bias : *biases) {
    if (bias.is_object() && bias.contains("type") && bias["type"] == "1d" && bias.size() > 1) {
      return InvalidArgument("UNSUPPORTED", config.Path("relative_bias_args"), Quote(bias.dump()),
                             "must have no other arguments than its type");
    }
  }
  return absl::OkStatus();
}

}  // namespace

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
  const OneStack stack = one.value_or(OneStack{});
  POSENC_RETURN_IF_ERROR(CheckBiasArguments(part.config));
  POSENC_ASSIGN_OR_RETURN(const auto buckets, part.config.Integer({stack.buckets_field}));
  POSENC_ASSIGN_OR_RETURN(const auto distance, part.config.Integer({stack.distance_field}));
  t5.num_buckets = buckets.value_or(stack.num_buckets);
  t5.max_distance = distance.value_or(stack.max_distance);
  part.SayNote();
  if (stack.scales_scores) return t5;
  part.Say("UNSCALED_SCORES", "component",
           "T5 adds its bias to q.k, which it does not scale by 1/sqrt(head_dim); its cross-attention has none");
  return t5;
}

}  // namespace posenc
