// List of all methods. docs/adding-a-method.md lists the other places that a new method changes.
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

// A family and its methods' names, for server information.
struct MethodFamily {
  std::string_view family;
  std::vector<std::string_view> methods;
};
std::vector<MethodFamily> MethodFamilies();

// Returns the names of all rotary scalings, for error messages: "default", "linear", ...
std::string RopeTypeNames();

}  // namespace posenc
