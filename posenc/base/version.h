// Versions of this build.
#pragma once

#include <cstdint>

namespace posenc {

extern const char kVersion[];
extern const char kBuild[];

// Incremented whenever the bytes of an answer to given settings change. A config.json that a release reads as other
// settings changes AnswerInfo.plan_fingerprint, or other fields of AnswerInfo, not this number.
inline constexpr uint32_t kNumericsVersion = 1;

// The library version whose interpretation of config.json this build follows.
inline constexpr char kConfigRules[] = "transformers 5.24";

}  // namespace posenc
