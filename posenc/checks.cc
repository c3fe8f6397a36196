#include "posenc/checks.h"

#include <fmt/format.h>

#include <cmath>

#include "posenc/status.h"

namespace posenc {

absl::Status CheckFinite(std::string_view name, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite");
}

absl::Status CheckPositive(std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite and above 0");
}

}  // namespace posenc
