// The types by which a part's layers differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// Types of classes that list no types, but which layers turn.
inline constexpr std::string_view kRope = "rope", kNoRope = "no_rope";

// The type of each layer; empty where all are the same or their number is not known.
absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers);

// False of layers of other kinds, which no class rotates.
bool HasAttention(std::string_view layer_type);

// Whether the class leaves these layers without rotary embedding.
bool LeavesOut(const Part& part, std::string_view layer_type);

// Where a layer's theta is its own (kThetaList), the theta that its type names.
std::optional<double> ThetaOf(const Part& part, std::string_view layer_type);

}  // namespace posenc
