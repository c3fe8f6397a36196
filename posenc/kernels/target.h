// Which instruction set the kernels run on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

// Lower-case names of the targets that this build has and this processor can run, best first: "avx3", "avx2", "sse4",
// "ssse3", or "sve2", "sve", "neon", ...; always with Highway's portable one last, "scalar" or "emu128" by compiler.
std::vector<std::string> SupportedCpuTargets();

// The target in use.
std::string CpuTarget();

// Forces a target by name for every kernel of the process. INVALID_ARGUMENT naming the choices, and no change, when it
// is unknown or not supported. Not to be called while kernels run.
absl::Status ForceCpuTarget(std::string_view name);

// Applies the environment variable POSENC_TARGET if it is set and not empty. Programs call it once, before all else.
absl::Status ForceCpuTargetFromEnvironment();

}  // namespace posenc
