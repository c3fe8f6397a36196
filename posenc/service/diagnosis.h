// Message conversions that the diagnoses of rotations and of biases share.
#pragma once

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/diagnose.h"

namespace posenc::wire {

template <class Request>
absl::StatusOr<int32_t> MostExplanations(const Request& request) {
  constexpr int32_t kDefault = 5, kMost = 32;
  const int32_t most = request.has_max_explanations() ? request.max_explanations() : kDefault;
  if (most >= 1 && most <= kMost) return most;
  return InvalidArgument("OUT_OF_RANGE", "max_explanations", fmt::format("{}", most),
                         fmt::format("must be 1 .. {}", kMost));
}

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
