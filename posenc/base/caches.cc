#include "posenc/base/caches.h"

#include <unistd.h>

#include <fstream>
#include <string_view>

namespace posenc {
namespace {

template <class T>
std::optional<T> FirstWord(const std::string& path) {
  std::ifstream file(path);
  T value;
  if (!(file >> value)) return std::nullopt;
  return value;
}

// Parses "2048K" to bytes; the kernel uses no other unit.
std::optional<size_t> Kibibytes(const std::optional<std::string>& text) {
  constexpr std::string_view kDigits = "0123456789";
  if (!text || text->size() < 2 || text->size() > 10 || text->find_first_not_of(kDigits) != text->size() - 1 ||
      text->back() != 'K') {
    return std::nullopt;
  }
  return std::stoull(*text) << 10;
}

size_t KnownOrUsual() {
  if (const std::optional<size_t> shown = SecondLevelCache(); shown && *shown > 0) return *shown;
  // On Arm, and with musl, the C library returns -1 or 0: assume 1 MiB, the size in most processors.
  const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return known > 0 ? static_cast<size_t>(known) : size_t{1} << 20;
}

}  // namespace

std::optional<size_t> SecondLevelCache(const std::string& root) {
  for (int n = 0;; ++n) {
    const std::string cache = root + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(n) + "/";
    const std::optional<int> level = FirstWord<int>(cache + "level");
    if (!level) return std::nullopt;
    if (*level == 2 && FirstWord<std::string>(cache + "type") != "Instruction") {
      return Kibibytes(FirstWord<std::string>(cache + "size"));
    }
  }
}

bool ExceedsCaches(size_t bytes) {
  static const size_t second_level = KnownOrUsual();
  return bytes > second_level;
}

}  // namespace posenc
