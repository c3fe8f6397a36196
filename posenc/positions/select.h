// Finds the object of a config.json whose class computes position ids.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/positions/rules.h"

namespace posenc {

struct SelectedRule {
  const PositionRule* rule;
  ConfigObject model;  // refers to the file
};

// Returns the rule of the part called `component` or of the whole file, or PlainPositions(). INVALID_ARGUMENT if
// several parts have rules and `component` selects none, or if the model_type is not known.
absl::StatusOr<SelectedRule> SelectPositionRule(const nlohmann::json& file, const std::string& component);

}  // namespace posenc
