// Versions of this build.
#pragma once

#include <cstdint>

namespace posenc {

extern const char kVersion[];
extern const char kBuild[];

// Incremented whenever any byte of any answer changes.
inline constexpr uint32_t kNumericsVersion = 1;

// The library version whose interpretation of config.json this build follows.
inline constexpr char kConfigRules[] = "transformers 5.23";

}  // namespace posenc
