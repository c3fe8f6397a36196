// Message conversions that the diagnoses of rotations and of biases share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/v1/diagnose.pb.h"

namespace posenc::wire {

template <class Request>
absl::StatusOr<int32_t> MostExplanations(const Request& request) {
  constexpr int32_t kDefault = 5, kMost = 32;
  const int32_t most = request.has_max_explanations() ? request.max_explanations() : kDefault;
  if (most >= 1 && most <= kMost) return most;
  return InvalidArgument("OUT_OF_RANGE", "max_explanations", fmt::format("{}", most),
                         fmt::format("must be 1 .. {}", kMost));
}

// Reads tolerance_ulp.
template <class Request>
absl::StatusOr<std::optional<double>> ReadTolerance(const Request& request) {
  if (!request.has_tolerance_ulp()) return std::nullopt;
  constexpr double kMost = 1 << 20;
  const double ulp = request.tolerance_ulp();
  if (ulp >= 0 && ulp <= kMost) return ulp;
  return InvalidArgument("OUT_OF_RANGE", "tolerance_ulp", fmt::format("{}", ulp),
                         fmt::format("must be 0 .. {}", kMost));
}

void WriteVerdict(const diagnose::Verdict& verdict, v1::Verdict* message);

template <class Response>
void WriteUndecided(const std::vector<diagnose::Undecided>& all, Response* response) {
  for (const diagnose::Undecided& undecided : all) {
    auto* message = response->add_undecided();
    message->set_code(undecided.code);
    message->set_message(undecided.message);
    message->set_remedy(undecided.remedy);
  }
}

}  // namespace posenc::wire
