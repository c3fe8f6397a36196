// What this build is.
#pragma once

#include <cstdint>

namespace posenc {

extern const char kVersion[];
extern const char kBuild[];

// Changes whenever any byte of any answer does.
inline constexpr uint32_t kNumericsVersion = 1;

// Whose reading of a config.json is followed.
inline constexpr char kConfigRules[] = "transformers 5.23";

}  // namespace posenc
