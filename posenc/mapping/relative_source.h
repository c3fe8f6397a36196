// From a request's method of relative terms, and the config.json beside its weights, to settings.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"
#include "posenc/relative/relative_scores.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ResolvedTerms {
  RelativeMethod method;
  Precision precision;
  std::vector<Note> notes;
  std::optional<ModelTerms> model;  // whose sizes the tables have
};

// Errors name the field from "method" on.
absl::StatusOr<ResolvedTerms> ResolveTerms(const Reader& reader, const v1::RelativeMethod& method,
                                           const v1::Precision& precision);
// Of the values; errors from "shaw" on.
absl::StatusOr<ResolvedTerms> ResolveValues(const Reader& reader, const v1::Shaw& shaw, const v1::Precision& precision);

// INVALID_ARGUMENT unless q is of the model's heads, or of some of them as the geometry says, and the model's biases of
// q are there.
absl::Status CheckCall(const ModelTerms& model, const RelativeScoresCall& call);

}  // namespace posenc::wire
