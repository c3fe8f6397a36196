// Diagnosis of rotations whose queries are also multiplied by a factor of their position.
//
// The factor commutes with the rotation. So `before` is multiplied by the factors that are expected, and what is left
// is a rotation to diagnose. If it is not the expected one, other factors are tried: those of usual mistakes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/diagnose/diagnose.h"

namespace posenc::diagnose {

// The factor of q that should have been applied. Asked's settings have none.
struct AskedScale {
  std::optional<QueryScale> scale;                         // absent: none
  std::vector<std::pair<std::string, QueryScale>> others;  // of the model's other layers, by their names
  std::vector<double> indexes;                             // the tokens' indexes in the cache; empty: not given
};

// As Diagnose. Departures of the factor have codes that begin with QUERY_SCALE. Explanations' settings have the factor
// with which they were computed.
absl::StatusOr<Diagnosis> DiagnoseScaled(const Evidence& evidence, const Asked& asked, const AskedScale& asked_scale,
                                         size_t most_explanations, const Limits& limits, WorkPool& pool,
                                         const Cancellation& cancelled);

}  // namespace posenc::diagnose
