// All methods by family, for server information.
#pragma once

#include <string_view>
#include <vector>

namespace posenc {

// A family and its methods' names.
struct MethodFamily {
  std::string_view family;
  std::vector<std::string_view> methods;
};
std::vector<MethodFamily> MethodFamilies();

}  // namespace posenc
