// Paths of the Open Inference Protocol.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace posenc::server {

// What a path names.
struct PathNames {
  std::string model, version, region;
};

class Path {
 public:
  // Takes the query off, and decodes %XX. A path that is malformed matches nothing.
  static Path Of(std::string_view target);

  // Returns the names if the path is `pattern`, "/v2/models/{model}/ready". Behind {model}, a path may also have
  // /versions/VERSION.
  std::optional<PathNames> Match(std::string_view pattern) const;

 private:
  std::vector<std::string> segments_;  // at least one, unless it is malformed
};

}  // namespace posenc::server
