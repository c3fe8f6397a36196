// Which rule gave ALiBi's slopes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc::diagnose {

struct NamedSlopes {
  int64_t num_heads;
  int64_t head_start;
  decltype(AlibiSettings::slopes) slopes;
  std::string name;
};

Matrix<double> AsMatrix(const std::vector<double>& slopes);

// Each rule whose slopes are near these: of as many heads, or else the slopes of some of more heads.
std::vector<NamedSlopes> ByRule(const std::vector<double>& slopes);
// The slopes themselves, float32, and how far they are from a rule's, if that can be said in one word.
NamedSlopes AsTheyAre(const std::vector<double>& slopes);

}  // namespace posenc::diagnose
