// Runs a check on each CPU target that this machine has.
#pragma once

#include <string>

#include "gtest/gtest.h"
#include "posenc/kernels/target.h"

namespace posenc {

template <class Check>
void OnEveryTarget(const Check& check) {
  const std::string before = CpuTarget();
  for (const std::string& target : SupportedCpuTargets()) {
    SCOPED_TRACE("CPU target " + target);
    ASSERT_TRUE(ForceCpuTarget(target).ok());
    check();
  }
  ASSERT_TRUE(ForceCpuTarget(before).ok());
}

}  // namespace posenc
