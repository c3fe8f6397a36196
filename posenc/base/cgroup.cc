#include "posenc/base/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

namespace posenc {
namespace {

// cgroup v1 reports "unlimited" as a number just below 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> Integer(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream stream(*text);
  int64_t value;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

template <typename Number>
void KeepLess(std::optional<Number> candidate, std::optional<Number>* least) {
  if (candidate && (!*least || *candidate < **least)) *least = candidate;
}

// Returns the directories that can limit this process: its group's in the hierarchy of `controller`, and all ancestors.
// The root is included, because a container may see its own group mounted there. `controller` is empty for cgroup v2.
std::vector<std::string> GroupDirectories(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::vector<std::string> directories;
  for (std::string line; std::getline(file, line);) {  // ID:CONTROLLERS:PATH
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? !controllers.empty()
                           : ("," + controllers + ",").find("," + controller + ",") == std::string::npos) {
      continue;
    }
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    for (;; path.resize(path.rfind('/'))) {
      // A hierarchy shared by two controllers is mounted under both names ("cpu,cpuacct", with a link "cpu").
      directories.push_back(root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller) + path);
      if (path.empty()) break;
    }
  }
  return directories;
}

// Parses cgroup v2 "QUOTA PERIOD", e.g. "150000 100000"; nullopt for "max 100000" (no quota).
std::optional<double> CpuMax(const std::string& directory) {
  const auto line = FirstLine(directory + "/cpu.max");
  if (!line) return std::nullopt;
  std::istringstream stream(*line);
  double quota, period;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> CfsQuota(const std::string& directory) {
  const auto quota = Integer(FirstLine(directory + "/cpu.cfs_quota_us"));
  const auto period = Integer(FirstLine(directory + "/cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // -1: no quota
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int AffinityCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;  // more processors than the set can hold
  return std::max(CPU_COUNT(&set), 1);
}

std::optional<int64_t> MachineMemory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  int64_t kibibytes;
  if (!(file >> name >> kibibytes) || name != "MemTotal:") return std::nullopt;
  return kibibytes * 1024;
}

}  // namespace

std::optional<double> CgroupCpuQuota(const std::string& root) {
  std::optional<double> least;
  for (const std::string& directory : GroupDirectories(root, "")) KeepLess(CpuMax(directory), &least);
  for (const std::string& directory : GroupDirectories(root, "cpu")) KeepLess(CfsQuota(directory), &least);
  return least;
}

std::optional<int64_t> CgroupMemoryLimit(const std::string& root) {
  std::optional<int64_t> least;
  for (const std::string& directory : GroupDirectories(root, "")) {
    KeepLess(Integer(FirstLine(directory + "/memory.max")), &least);
  }
  for (const std::string& directory : GroupDirectories(root, "memory")) {
    KeepLess(Integer(FirstLine(directory + "/memory.limit_in_bytes")), &least);
  }
  if (least && *least >= kNoLimit) return std::nullopt;
  return least;
}

int AvailableCpus(const std::string& root) {
  const int allowed = AffinityCount();
  const std::optional<double> quota = CgroupCpuQuota(root);
  if (!quota || *quota >= allowed) return allowed;
  return std::max(static_cast<int>(std::ceil(*quota)), 1);
}

int64_t AvailableMemory(const std::string& root) {
  std::optional<int64_t> least = CgroupMemoryLimit(root);
  KeepLess(MachineMemory(root), &least);
  return least.value_or(0);
}

}  // namespace posenc
