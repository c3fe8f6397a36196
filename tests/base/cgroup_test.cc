#include "posenc/base/cgroup.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace posenc::cgroup_test {
namespace {

// A directory with files like the kernel's, removed at the end.
class Cgroup : public testing::Test {
 protected:
  Cgroup() {
    std::string name = testing::TempDir() + "/cgroup_testXXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Cgroup() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(Cgroup, NothingToRead) {
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
  EXPECT_EQ(CgroupMemoryLimit(root_), std::nullopt);
  EXPECT_GE(AvailableCpus(root_), 1);
  EXPECT_EQ(AvailableMemory(root_), 0);
}

// Recorded with Docker 20.10 on Linux 6.1, --cpus 1.5 --memory 512m. The container has a cgroup namespace, so its own
// group is the root.
TEST_F(Cgroup, Version2InAContainer) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/proc/meminfo", "MemTotal:        6082388 kB\n");
  const std::pair<const char*, const char*> files[] = {
      {"cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n"},
      {"cgroup.max.depth", "max\n"},
      {"cgroup.subtree_control", ""},
      {"cgroup.type", "domain\n"},
      {"cpu.idle", "0\n"},
      {"cpu.max", "150000 100000\n"},
      {"cpu.max.burst", "0\n"},
      {"cpu.weight", "100\n"},
      {"cpuset.cpus", "\n"},
      {"cpuset.cpus.effective", "0-1\n"},
      {"memory.high", "max\n"},
      {"memory.low", "0\n"},
      {"memory.max", "536870912\n"},
      {"memory.min", "0\n"},
      {"memory.swap.max", "max\n"},
      {"pids.max", "max\n"},
  };
  for (const auto& [name, text] : files) Write(std::string("/sys/fs/cgroup/") + name, text);
  EXPECT_EQ(CgroupCpuQuota(root_), 1.5);
  EXPECT_EQ(CgroupMemoryLimit(root_), 536870912);
  EXPECT_EQ(AvailableMemory(root_), 536870912);
}

// Recorded with --cgroupns host, --cpus 1 --memory 256m: the container sees the host's tree, whose root has no limits.
TEST_F(Cgroup, Version2InTheHostsNamespace) {
  const std::string group = "/docker/b8cb71fd8d0ebd6c846b2f17599f3f3505fb570a23b96bbb65c670174c92d8ad";
  Write("/proc/self/cgroup", "0::" + group + "\n");
  Write("/sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu io memory hugetlb pids rdma misc\n");
  Write("/sys/fs/cgroup/docker/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/docker/memory.max", "max\n");
  Write("/sys/fs/cgroup" + group + "/cpu.max", "100000 100000\n");
  Write("/sys/fs/cgroup" + group + "/memory.max", "268435456\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 1.0);
  EXPECT_EQ(CgroupMemoryLimit(root_), 268435456);
}

TEST_F(Cgroup, Version2WithoutLimits) {
  Write("/proc/self/cgroup", "0::/user.slice\n");
  Write("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/user.slice/memory.max", "max\n");
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
  EXPECT_EQ(CgroupMemoryLimit(root_), std::nullopt);
}

TEST_F(Cgroup, TheTightestAncestorCounts) {
  Write("/proc/self/cgroup", "0::/pods.slice/pod1/container\n");
  Write("/sys/fs/cgroup/pods.slice/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/pods.slice/pod1/cpu.max", "50000 100000\n");
  Write("/sys/fs/cgroup/pods.slice/pod1/container/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/pods.slice/memory.max", "1000\n");
  Write("/sys/fs/cgroup/pods.slice/pod1/container/memory.max", "2000\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 0.5);
  EXPECT_EQ(CgroupMemoryLimit(root_), 1000);
  EXPECT_EQ(AvailableCpus(root_), 1) << "half a processor still needs a thread";
}

TEST_F(Cgroup, Version1) {
  Write("/proc/self/cgroup", "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n2:cpuset:/\n0::/system.slice\n");
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "200000\n");
  Write("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 2.0);
  EXPECT_EQ(CgroupMemoryLimit(root_), std::nullopt) << "version 1's way of saying unlimited";
}

// Docker without a cgroup namespace: the path is the host's, but the mount is the container's own group.
TEST_F(Cgroup, Version1MountedAtTheTop) {
  Write("/proc/self/cgroup", "4:cpuacct,cpu:/docker/abc\n12:memory:/docker/abc\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(CgroupCpuQuota(root_), 0.25);
  EXPECT_EQ(CgroupMemoryLimit(root_), 1073741824);
}

TEST_F(Cgroup, IgnoresWhatItCannotRead) {
  Write("/proc/self/cgroup", "nonsense\n0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "lots\n");
  Write("/sys/fs/cgroup/a/memory.max", "\n");
  EXPECT_EQ(CgroupCpuQuota(root_), std::nullopt);
  EXPECT_EQ(CgroupMemoryLimit(root_), std::nullopt);
}

TEST_F(Cgroup, MemoryIsTheLesserOfLimitAndMachine) {
  Write("/proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
  EXPECT_EQ(AvailableMemory(root_), 2048 * 1024);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1000\n");
  EXPECT_EQ(AvailableMemory(root_), 1000);
}

}  // namespace
}  // namespace posenc::cgroup_test
