// Layer types of a part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// Layer types of classes that list which layers rotate, not the layers' types.
inline constexpr std::string_view kRope = "rope", kNoRope = "no_rope";

// Returns the type of each layer; empty if layers have no types, or if no list gives them and `layers` is 0 (unknown).
absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers);

// False for linear_attention, conv, mamba, recurrent, moe and mlp layers, which no class rotates.
bool HasAttention(std::string_view layer_type);

// True if the class gives these layers no rotary embedding.
bool LeavesOut(const Part& part, std::string_view layer_type);

// Returns the theta in the name of a layer type of kThetaList; otherwise nullopt.
std::optional<double> ThetaOf(const Part& part, std::string_view layer_type);

}  // namespace posenc
