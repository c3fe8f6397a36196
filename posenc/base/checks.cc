#include "posenc/base/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class Float>
absl::Status CheckEachFinite(std::string_view name, const std::vector<Float>& values) {
  for (size_t n = 0; n < values.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
    if (!std::isfinite(values[n])) return CheckFinite(fmt::format("{}[{}]", name, n), values[n]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFinite(std::string_view name, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite");
}

absl::Status CheckFinite(std::string_view name, const std::vector<float>& values) {
  return CheckEachFinite(name, values);
}

absl::Status CheckFinite(std::string_view name, const std::vector<double>& values) {
  return CheckEachFinite(name, values);
}

absl::Status CheckPositive(std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite and above 0");
}

absl::Status CheckPosition(std::string_view name, double position) {
  if (std::abs(position) <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", position),
                         "must be finite and at most 2^53 in magnitude");
}

absl::Status CheckDataType(std::string_view name, DType dtype) {
  if (dtype == DType::kFP32 || dtype == DType::kFP16 || dtype == DType::kBF16) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", name, Name(dtype), "must be FP32, FP16 or BF16");
}

absl::Status CheckSequenceBounds(std::string_view name, const std::vector<int64_t>& bounds, int64_t tokens) {
  if (bounds.empty()) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.shape", name), "[0]", "must not be empty");
  }
  if (bounds[0] != 0) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[0]", name), fmt::format("{}", bounds[0]), "must be 0");
  }
  for (size_t n = 1; n < bounds.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    if (bounds[n] < bounds[n - 1]) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", name, n), fmt::format("{}", bounds[n]),
                             fmt::format("must not be below its predecessor {}", bounds[n - 1]));
    }
  }
  if (bounds.back() != tokens) {
    return InvalidArgument("MISMATCH", fmt::format("{}[{}]", name, bounds.size() - 1), fmt::format("{}", bounds.back()),
                           fmt::format("must be the number of tokens {}", tokens));
  }
  return absl::OkStatus();
}

}  // namespace posenc
