#include "posenc/methods/rope.h"

#include <fmt/format.h>
#include "posenc/status.h"

namespace posenc {

absl::Status Require(std::string_view name, const std::optional<double>& field, std::string_view rope_type) {
  if (field) return absl::OkStatus();
  return InvalidArgument("MISSING", name, "", fmt::format("required by rope_type \"{}\"", rope_type));
}

absl::Status RequireAtLeast(std::string_view name, double value, double least) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), fmt::format("must be at least {}", least));
}

absl::Status RequirePositive(std::string_view name, double value) {
  if (value > 0) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be above 0");
}

}  // namespace posenc
