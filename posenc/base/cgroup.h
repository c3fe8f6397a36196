// What share of the machine this process may use. Hardware counts ignore a container's limits: a pool of as many
// threads as the host has processors would be throttled, a budget of the host's memory would be killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace posenc {

// `root` is put before /proc and /sys: "" means the machine itself, tests name a recorded tree.

// Processors that the cgroup's quota amounts to, e.g. 1.5; nothing where there is no quota. Version 2 (cpu.max) and
// version 1 (cpu.cfs_quota_us); the smallest of the group's own and its ancestors'.
std::optional<double> CgroupCpuQuota(const std::string& root = "");

// The cgroup's memory limit in bytes (memory.max or memory.limit_in_bytes), likewise.
std::optional<int64_t> CgroupMemoryLimit(const std::string& root = "");

// Processors to plan for, >= 1: those that the scheduler's affinity mask allows, but no more than the quota, rounded
// up.
int AvailableCpus(const std::string& root = "");

// Bytes of memory to plan for: the cgroup's limit or the machine's memory, whichever is less. 0 if neither can be read.
int64_t AvailableMemory(const std::string& root = "");

}  // namespace posenc
