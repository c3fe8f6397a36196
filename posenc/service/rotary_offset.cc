#include "posenc/service/rotary_offset.h"

#include <fmt/format.h>

#include "posenc/base/status.h"

namespace posenc::wire {

absl::StatusOr<int64_t> RotaryOffset(const std::string& name, int64_t rotary_offset, bool rotates_first, int64_t width,
                                     ResolvedRotary* resolved) {
  const std::string field = name + ".rotary_offset";
  if (rotates_first) {
    if (rotary_offset == 0) return 0;
    return Against(name + ".rotates_first", InvalidArgument("CONFLICT", field, fmt::format("{}", rotary_offset),
                                                            "must be 0 with rotates_first"));
  }
  const bool decides =
      resolved->rotary && resolved->rotary->rotates() && resolved->whole_head != 0 && rotary_offset == 0;
  if (!decides || width == 0) return rotary_offset;
  const int64_t rotary_dim = resolved->rotary->rotary_dim();
  if (width <= rotary_dim) return 0;
  if (width != resolved->whole_head) {
    return InvalidArgument(
        "MISSING", field, "",
        fmt::format("must be given, or rotates_first: heads have {} elements, the model's {}, and {} of "
                    "them rotate",
                    width, resolved->whole_head, rotary_dim));
  }
  if (resolved->rotary_offset == 0) return 0;
  resolved->notes.push_back({"ROTARY_OFFSET", field,
                             fmt::format("{}: the model rotates the last {} elements of its heads' {}",
                                         resolved->rotary_offset, rotary_dim, width)});
  return resolved->rotary_offset;
}

}  // namespace posenc::wire
