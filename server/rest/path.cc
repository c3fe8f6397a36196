#include "server/rest/path.h"

#include <algorithm>
#include <charconv>

namespace posenc::server {
namespace {

// Returns false for a wrong %XX.
bool Decode(std::string_view encoded, std::string* text) {
  for (size_t n = 0; n < encoded.size(); ++n) {
    if (encoded[n] != '%') {
      *text += encoded[n];
      continue;
    }
    unsigned char byte = 0;
    const char* const digits = encoded.data() + n + 1;
    if (encoded.size() - n < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return false;
    *text += static_cast<char>(byte);
    n += 2;
  }
  return true;
}

}  // namespace

Path Path::Of(std::string_view target) {
  Path path;
  target = target.substr(0, target.find('?'));
  while (!target.empty()) {
    if (target.front() != '/') return {};
    target.remove_prefix(1);
    const std::string_view segment = target.substr(0, target.find('/'));
    if (!Decode(segment, &path.segments_.emplace_back())) return {};
    target.remove_prefix(segment.size());
  }
  return path;
}

std::optional<PathNames> Path::Match(std::string_view pattern) const {
  PathNames names;
  size_t at = 0;
  while (!pattern.empty()) {
    pattern.remove_prefix(1);  // the slash
    const std::string_view wanted = pattern.substr(0, pattern.find('/'));
    pattern.remove_prefix(wanted.size());
    if (at == segments_.size()) return std::nullopt;
    const std::string& given = segments_[at++];
    if (wanted == "{region}") {
      names.region = given;
    } else if (wanted == "{model}") {
      names.model = given;
      if (at + 1 < segments_.size() && segments_[at] == "versions") {
        names.version = segments_[at + 1];
        at += 2;
      }
    } else if (wanted != given) {
      return std::nullopt;
    }
    if (given.empty()) return std::nullopt;
  }
  if (at != segments_.size()) return std::nullopt;
  return names;
}

}  // namespace posenc::server
