#include "tools/load/duration.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "posenc/base/status.h"

namespace posenc::load {
namespace {

constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6},
                                                          {"m", 60}, {"min", 60}, {"h", 3600}};

constexpr double kMostSeconds = 3.6e6;

}  // namespace

absl::StatusOr<double> ParseSeconds(std::string_view field, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && std::isfinite(number) && number > 0) {
    const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
    for (const auto& [unit, seconds] : kUnits) {
      if (rest == unit && number * seconds <= kMostSeconds) return number * seconds;
    }
  }
  return InvalidArgument("MALFORMED", field, text, "must be a duration such as 500ms, 10s or 2m, at most 1000h");
}

absl::StatusOr<double> ParseShare(std::string_view field, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (rest == "%") number /= 100;
  if (error == std::errc() && (rest.empty() || rest == "%") && number >= 0 && number <= 1) return number;
  return InvalidArgument("MALFORMED", field, text, "must be a share such as 1% or 0.01");
}

}  // namespace posenc::load
