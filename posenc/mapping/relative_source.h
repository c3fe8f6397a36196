// Resolves a request's relative-position method, and the config.json beside its weights, to settings.
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
  std::optional<ModelTerms> model;  // the tables have its sizes
};

// Errors name the field by its path from "method" or "precision" on.
absl::StatusOr<ResolvedTerms> ResolveTerms(const Reader& reader, const v1::RelativeMethod& method,
                                           const v1::Precision& precision);
// ResolveTerms for RelativeValues. Errors name the field by its path from "shaw" or "precision" on.
absl::StatusOr<ResolvedTerms> ResolveValues(const Reader& reader, const v1::Shaw& shaw, const v1::Precision& precision);

// Returns INVALID_ARGUMENT unless q has the model's heads, or the part of them that the geometry selects, and
// Transformer-XL's biases are given exactly if the model has them.
absl::Status CheckCall(const ModelTerms& model, const RelativeScoresCall& call);

}  // namespace posenc::wire
