// List of all rotary scalings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "posenc/methods/rope/rope.h"

namespace posenc {

// Returns all rotary scalings.
const std::vector<RopeMethod>& RopeMethods();

// Returns the scaling with that name, or null.
const RopeMethod* FindRopeMethod(std::string_view rope_type);

// Returns the names of all rotary scalings, for error messages: "default", "linear", ...
std::string RopeTypeNames();

}  // namespace posenc
