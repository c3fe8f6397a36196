#include "posenc/base/caches.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace posenc::caches_test {
namespace {

// A directory with files like the kernel's, removed at the end.
class Caches : public testing::Test {
 protected:
  Caches() {
    std::string name = testing::TempDir() + "/caches_testXXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Caches() override { std::filesystem::remove_all(root_); }

  void Write(int index, const std::string& level, const std::string& type, const std::string& size) {
    const std::filesystem::path cache = root_ + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << level << '\n';
    std::ofstream(cache / "type") << type << '\n';
    if (!size.empty()) std::ofstream(cache / "size") << size << '\n';
  }

  std::string root_;
};

TEST_F(Caches, NothingToRead) { EXPECT_EQ(CacheSize(2, root_), std::nullopt); }

// Recorded on Linux 6.1, Intel Xeon of family 6, model 207.
TEST_F(Caches, OfAnIntelXeon) {
  Write(0, "1", "Data", "48K");
  Write(1, "1", "Instruction", "32K");
  Write(2, "2", "Unified", "2048K");
  Write(3, "3", "Unified", "266240K");
  EXPECT_EQ(CacheSize(2, root_), 2048u << 10);
  EXPECT_EQ(CacheSize(3, root_), 266240u << 10);
}

TEST_F(Caches, NotThatOfInstructions) {
  Write(0, "2", "Instruction", "512K");
  Write(1, "2", "Data", "256K");
  EXPECT_EQ(CacheSize(2, root_), 256u << 10);
}

TEST_F(Caches, NoSecondLevel) {
  Write(0, "1", "Data", "64K");
  EXPECT_EQ(CacheSize(2, root_), std::nullopt);
}

// If the firmware reports no sizes, the kernel lists cache levels without them.
TEST_F(Caches, IgnoresWhatItCannotRead) {
  for (const char* size : {"", "K", "1024", "12x4K", "-1K", "99999999999999999999K", "1M"}) {
    std::filesystem::remove_all(root_ + "/sys");
    Write(0, "2", "Unified", size);
    EXPECT_EQ(CacheSize(2, root_), std::nullopt) << size;
  }
}

TEST_F(Caches, ExceedsThemAtSomeSize) {
  for (const auto exceeds : {ExceedsCore, ExceedsCaches}) {
    EXPECT_FALSE(exceeds(0));
    EXPECT_FALSE(exceeds(64 << 10));
    EXPECT_TRUE(exceeds(size_t{1} << 40));
  }
}

TEST_F(Caches, WhatFitsACoreFitsAll) {
  for (size_t bytes = 1; bytes < size_t{1} << 40; bytes *= 2) EXPECT_TRUE(ExceedsCore(bytes) || !ExceedsCaches(bytes));
}

}  // namespace
}  // namespace posenc::caches_test
