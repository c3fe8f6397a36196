// CPU and memory limits of this process. Hardware counts ignore a container's limits: a thread pool sized for the host
// would be throttled, and a process that budgets the host's memory would be OOM-killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace posenc {

// In all functions `root` is prepended to /proc and /sys: "" is this machine, tests pass a recorded tree.

// Returns the cgroup's CPU quota in CPUs, e.g. 1.5; nullopt if there is no quota. Reads cgroup v2 (cpu.max) and v1
// (cpu.cfs_quota_us); the smallest quota of the group and its ancestors applies.
std::optional<double> CgroupCpuQuota(const std::string& root = "");

// Returns the cgroup's memory limit in bytes (memory.max or memory.limit_in_bytes): the smallest of the group and its
// ancestors, nullopt if there is none.
std::optional<int64_t> CgroupMemoryLimit(const std::string& root = "");

// Returns the number of CPUs to use, >= 1: those in the scheduler's affinity mask, at most the quota rounded up.
int AvailableCpus(const std::string& root = "");

// Returns the bytes of memory to plan for: the smaller of the cgroup's limit and the machine's memory. 0 if neither can
// be read.
int64_t AvailableMemory(const std::string& root = "");

}  // namespace posenc
