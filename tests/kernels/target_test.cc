#include "posenc/kernels/target.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/target_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// A kernel in another translation unit: forcing a target must affect it too.
HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
const char* KernelTarget() { return hwy::TargetName(HWY_TARGET); }
size_t VectorBytes() { return hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<uint8_t>()); }
}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {
namespace {

HWY_EXPORT(KernelTarget);
HWY_EXPORT(VectorBytes);

class TargetTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("POSENC_TARGET");
    ASSERT_TRUE(ForceCpuTarget(SupportedCpuTargets().front()).ok());
  }
};

TEST_F(TargetTest, StartsWithTheBest) { EXPECT_EQ(CpuTarget(), SupportedCpuTargets().front()); }

TEST_F(TargetTest, HasThePortableOneLast) {
  const std::string last = SupportedCpuTargets().back();
  EXPECT_TRUE(last == "scalar" || last == "emu128") << last;
}

TEST_F(TargetTest, ForcesEveryKernelOfTheProcess) {
  const std::vector<std::string> names = SupportedCpuTargets();
  // Down and up again: forcing a target must not shrink the list of choices.
  for (size_t turn = 0; turn < 2 * names.size(); ++turn) {
    const std::string& name = turn < names.size() ? names[turn] : names[2 * names.size() - 1 - turn];
    ASSERT_TRUE(ForceCpuTarget(name).ok()) << name;
    EXPECT_EQ(CpuTarget(), name);
    EXPECT_STRCASEEQ(HWY_DYNAMIC_DISPATCH(KernelTarget)(), name.c_str());
    EXPECT_EQ(SupportedCpuTargets(), names);
  }
}

// POSENC_EXPECTED_TARGETS names all targets of a machine, best first, with their vectors' bytes: "avx2:32 sse4:16 ...".
// scripts/test-arm sets it, so that a target missing on the processor or emulator does not count as tested.
TEST_F(TargetTest, HasVectorsOfTheLengthExpected) {
  std::string found;
  for (const std::string& name : SupportedCpuTargets()) {
    ASSERT_TRUE(ForceCpuTarget(name).ok()) << name;
    absl::StrAppend(&found, found.empty() ? "" : " ", name, ":", HWY_DYNAMIC_DISPATCH(VectorBytes)());
  }
  RecordProperty("targets", found);
  EXPECT_TRUE(found.ends_with("scalar:1") || found.ends_with("emu128:16")) << found;
  const char* expected = std::getenv("POSENC_EXPECTED_TARGETS");
  EXPECT_EQ(found, expected != nullptr ? expected : found);
}

TEST_F(TargetTest, RejectsUnknownNamesAndListsTheChoices) {
  ASSERT_TRUE(ForceCpuTarget(SupportedCpuTargets().back()).ok());
  for (const char* name : {"", "avx9", "AVX2", "avx2 ", "unknown"}) {
    const absl::Status status = ForceCpuTarget(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    const std::string message(status.message());
    EXPECT_NE(message.find(absl::StrCat("\"", name, "\"")), std::string::npos) << message;
    for (const std::string& choice : SupportedCpuTargets()) {
      EXPECT_NE(message.find(choice), std::string::npos) << message;
    }
    EXPECT_EQ(CpuTarget(), SupportedCpuTargets().back());
  }
}

TEST_F(TargetTest, ReadsTheEnvironment) {
  ASSERT_TRUE(ForceCpuTarget(SupportedCpuTargets().front()).ok());
  for (const char* unset : {"", static_cast<const char*>(nullptr)}) {
    if (unset != nullptr) {
      setenv("POSENC_TARGET", unset, 1);
    } else {
      unsetenv("POSENC_TARGET");
    }
    EXPECT_TRUE(ForceCpuTargetFromEnvironment().ok());
    EXPECT_EQ(CpuTarget(), SupportedCpuTargets().front());
  }
  setenv("POSENC_TARGET", SupportedCpuTargets().back().c_str(), 1);
  EXPECT_TRUE(ForceCpuTargetFromEnvironment().ok());
  EXPECT_EQ(CpuTarget(), SupportedCpuTargets().back());
  setenv("POSENC_TARGET", "pentium", 1);
  const absl::Status status = ForceCpuTargetFromEnvironment();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("POSENC_TARGET"), std::string::npos) << status;
}

}  // namespace
}  // namespace posenc
#endif  // HWY_ONCE
