// Fields of a diffusers file: numbers, widths that one of them says or two, and nulls that say something.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers_types.h"

namespace posenc {

// What is said of a field without which there is nothing to compute.
absl::Status Missing(const ConfigObject& config, std::string_view field);

// Of one head: the first field, divided by the second where there is one. INVALID_ARGUMENT naming a field that is below
// 1, or a width that the heads do not divide.
absl::StatusOr<int64_t> HeadWidth(const ConfigObject& config, const FieldWidth& width);

// Of all heads together: the product.
absl::StatusOr<int64_t> ModelWidth(const ConfigObject& config, const FieldWidth& width);

// null, which is the class's None; an absent field is its default.
bool IsNull(const ConfigObject& config, std::string_view field);

// A whole number of at least 1: the field's, else `own`. MISSING: neither is there.
absl::StatusOr<int64_t> PositiveField(const ConfigObject& config, std::string_view field, int64_t own);

}  // namespace posenc
