#include "tests/digests/digest_case.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>

#include "posenc/base/version.h"
#include "posenc/kernels/target.h"

namespace posenc {
namespace {

// The version of the numbers, then one line per case: its name and the digest of its bytes.
std::vector<std::string> Lines(const std::vector<Case>& cases) {
  std::vector<std::string> lines = {fmt::format("numerics_version {}", kNumericsVersion)};
  for (const Case& c : cases) {
    const Block bytes = c.run();
    lines.push_back(fmt::format("{} {:016x}", c.name, XXH3_64bits(bytes.data(), bytes.size())));
  }
  return lines;
}

}  // namespace

void Check(const std::string& file, const std::vector<Case>& cases) {
  const std::string path = fmt::format("{}/digests/{}.txt", POSENC_TEST_DATA, file);
  const std::vector<std::string> lines = Lines(cases);
  if (std::getenv("POSENC_WRITE_DIGESTS") != nullptr && CpuTarget() == SupportedCpuTargets().front()) {
    std::ofstream out(path);
    for (const std::string& line : lines) out << line << '\n';
  }
  std::ifstream in(path);
  std::string expected;
  for (const std::string& line : lines) {
    ASSERT_TRUE(std::getline(in, expected)) << path << " ends before " << line;
    EXPECT_EQ(line, expected);
  }
  EXPECT_FALSE(std::getline(in, expected)) << path << " has more: " << expected;
}

void DigestTest::SetUp() { ASSERT_TRUE(ForceCpuTarget(GetParam()).ok()); }
void DigestTest::TearDown() { ASSERT_TRUE(ForceCpuTarget(SupportedCpuTargets().front()).ok()); }

namespace {

INSTANTIATE_TEST_SUITE_P(EveryTarget, DigestTest, testing::ValuesIn(SupportedCpuTargets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace posenc
