#include "posenc/kernels/target.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/target.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

int64_t DispatchedTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {
namespace {

HWY_EXPORT(DispatchedTarget);

// Targets of this processor, cached before any target is forced: afterwards Highway reports only the forced one.
const std::vector<int64_t>& DetectedTargets() {
  static const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

std::string LowerCaseName(int64_t target) { return absl::AsciiStrToLower(hwy::TargetName(target)); }

}  // namespace

std::vector<std::string> SupportedCpuTargets() {
  std::vector<std::string> names;
  for (const int64_t target : DetectedTargets()) names.push_back(LowerCaseName(target));
  return names;
}

std::string CpuTarget() { return LowerCaseName(HWY_DYNAMIC_DISPATCH(DispatchedTarget)()); }

absl::Status ForceCpuTarget(std::string_view name) {
  for (const int64_t target : DetectedTargets()) {
    if (LowerCaseName(target) != name) continue;
    // All kernels' dispatch tables use one mask, which is recomputed on the first kernel call after this one.
    hwy::SetSupportedTargetsForTest(target);
    return absl::OkStatus();
  }
  const std::string choices = absl::StrJoin(SupportedCpuTargets(), ", ");
  return absl::InvalidArgumentError(
      absl::StrCat("CPU target \"", std::string(name), "\" is unknown or not supported here; choices: ", choices));
}

absl::Status ForceCpuTargetFromEnvironment() {
  const char* name = std::getenv("POSENC_TARGET");
  if (name == nullptr || *name == '\0') return absl::OkStatus();
  const absl::Status status = ForceCpuTarget(name);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("POSENC_TARGET: ", status.message()));
}

}  // namespace posenc
#endif  // HWY_ONCE
