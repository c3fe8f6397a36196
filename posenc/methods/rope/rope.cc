#include "posenc/methods/rope/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {

bool Reads(const RopeMethod& method, std::string_view field) {
  return std::find(method.reads.begin(), method.reads.end(), field) != method.reads.end();
}

absl::Status Require(std::string_view name, const std::optional<double>& field, std::string_view rope_type) {
  if (field) return absl::OkStatus();
  return InvalidArgument("MISSING", name, "", fmt::format("must be given with rope_type \"{}\"", rope_type));
}

absl::Status RequireAtLeast(std::string_view name, double value, double least) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), fmt::format("must be at least {}", least));
}

absl::Status RequireAtLeast(std::string_view name, double value, std::string_view other_name, double other) {
  if (value >= other) return absl::OkStatus();
  return Against(other_name, InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value),
                                             fmt::format("must be at least {}, {}", other_name, other)));
}

absl::Status RequireAboveTwo(const RopeInput& input, std::string_view rope_type) {
  if (input.dim > 2) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", input.parameters.frequency_dim ? "frequency_dim" : "rotary_dim",
                         fmt::format("{}", input.dim),
                         fmt::format("must be above 2: rope_type \"{}\" divides by this value minus 2", rope_type));
}

absl::Status RequireFactors(std::string_view name, const std::vector<double>& factors, int64_t pairs) {
  const std::string limit = fmt::format("must be rotary_dim/2 = {} values", pairs);
  if (factors.empty()) return InvalidArgument("MISSING", name, "", limit);
  if (factors.size() != static_cast<size_t>(pairs)) {
    return InvalidArgument("MISMATCH", name, fmt::format("{} values", factors.size()), limit);
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    POSENC_RETURN_IF_ERROR(CheckPositive(fmt::format("{}[{}]", name, i), factors[i]));
  }
  return absl::OkStatus();
}

std::optional<double> ResonantFrequency(double inv_freq) {
  if (inv_freq == 0) return inv_freq;
  // Decides every wavelength: it is irrational, below 2^1077, and no float64 has one as close to a half as 2^-100.
  const RealPrecision precision(1200);
  const Real turn = Real(2.0) * Real::Pi();
  const Real wavelength = Floor(turn / Real(std::abs(inv_freq)) + Real(0.5));
  if (wavelength == Real(0.0)) return std::nullopt;
  return std::copysign(NearestDouble(turn / wavelength), inv_freq);
}

}  // namespace posenc
