// The one list of methods. docs/adding-a-method.md says what else a new one touches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "posenc/methods/rope/rope.h"

namespace posenc {

// All rotary scalings.
const std::vector<RopeMethod>& RopeMethods();

// The scaling of that name, or null.
const RopeMethod* FindRopeMethod(std::string_view rope_type);

// For server information: families and their methods' names.
struct MethodFamily {
  std::string_view family;
  std::vector<std::string_view> methods;
};
std::vector<MethodFamily> MethodFamilies();

// Names of all rotary scalings, for error messages: "default", "linear", ...
std::string RopeTypeNames();

}  // namespace posenc
