#include "posenc/model/parts.h"

#include <fmt/format.h>

#include "posenc/base/status.h"

namespace posenc {
namespace {

// Reads the rows of a table of which the class reads only the first num_buckets.
absl::Status ReadTableRows(const OneStack& stack, Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto rows, part.config.Integer({stack.rows_field}));
  const int64_t count = rows.value_or(stack.num_buckets);
  if (count < stack.num_buckets) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(stack.rows_field), fmt::format("{}", count),
                           fmt::format("must be at least {}: model_type \"{}\" reads as many rows of its table",
                                       stack.num_buckets, part.type.name));
  }
  if (count == stack.num_buckets) return absl::OkStatus();
  part.bias_table_rows = count;
  part.Say("NOT_USED", std::string(stack.rows_field),
           fmt::format("model_type \"{}\" always has {} buckets; it does not read the other rows of its table",
                       part.type.name, stack.num_buckets));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<T5Settings> T5Of(Part& part) {
  const std::string& component = part.name;
  const std::optional<OneStack>& one = part.type.one_stack;
  const bool encoder = component.ends_with("encoder");
  if (!one && !encoder && component != "decoder") {
    return InvalidArgument(component.empty() ? "MISSING" : "UNKNOWN_VALUE", "component", component,
                           "must be one of \"encoder\", \"decoder\": the file holds two stacks with different buckets");
  }
  T5Settings t5;
  t5.bidirectional = one ? one->bidirectional : encoder;
  const OneStack stack = one.value_or(OneStack{});
  POSENC_ASSIGN_OR_RETURN(const auto buckets, part.config.Integer({stack.buckets_field}));
  POSENC_ASSIGN_OR_RETURN(const auto distance, part.config.Integer({stack.distance_field}));
  if (!stack.buckets_field.empty()) part.Comes("t5.num_buckets", part.config.Path(stack.buckets_field));
  if (!stack.distance_field.empty()) part.Comes("t5.max_distance", part.config.Path(stack.distance_field));
  t5.num_buckets = buckets.value_or(stack.num_buckets);
  t5.max_distance = distance.value_or(stack.max_distance);
  if (!stack.rows_field.empty()) POSENC_RETURN_IF_ERROR(ReadTableRows(stack, part));
  part.SayNote();
  if (stack.scales_scores) return t5;
  part.Say("UNSCALED_SCORES", "component",
           "T5 adds its bias to q.k without scaling by 1/sqrt(head_dim); its cross-attention has no bias");
  return t5;
}

}  // namespace posenc
