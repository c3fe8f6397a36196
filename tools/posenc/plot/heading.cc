#include "tools/posenc/plot/heading.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace posenc::command {

std::vector<std::string> Heading(const std::string& title, const std::string& settings, double width) {
  std::vector<std::string> lines = absl::StrSplit(title, '\n');
  std::string line;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(settings, ", "))) {
    const size_t length = line.size() + part.size() + 3;
    if (!line.empty() && static_cast<double>(length) * kCharacter > width) {
      lines.push_back(line + ",");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : ", ", part);
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace posenc::command
