// Detection of the rule that gave ALiBi's slopes.
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

// Each rule whose slopes for this number of heads are near these; if none, the first slice of a rule for more heads.
std::vector<NamedSlopes> ByRule(const std::vector<double>& slopes);
// The slopes as float32, with a few words on how they differ from a rule's if they resemble one.
NamedSlopes AsTheyAre(const std::vector<double>& slopes);

}  // namespace posenc::diagnose
