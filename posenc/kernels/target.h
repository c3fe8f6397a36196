// Selection of the instruction set (CPU target) that the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

// Returns lower-case names of the targets that this build has and this processor can run, best first: "avx3", "avx2",
// "sse4", "ssse3", or "sve2", "sve", "neon", ... The last is Highway's portable target: "scalar" or "emu128", depending
// on the compiler.
std::vector<std::string> SupportedCpuTargets();

// Returns the name of the target in use.
std::string CpuTarget();

// Forces a target by name for every kernel of the process. Returns INVALID_ARGUMENT with the choices, and changes
// nothing, if the name is unknown or not supported. Must not be called while kernels run.
absl::Status ForceCpuTarget(std::string_view name);

// Calls ForceCpuTarget with the environment variable POSENC_TARGET if it is set and not empty, and returns its status
// with the variable's name in the message. Programs call it once, first of all.
absl::Status ForceCpuTargetFromEnvironment();

}  // namespace posenc
