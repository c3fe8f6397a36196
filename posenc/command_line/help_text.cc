#include "posenc/command_line/help_text.h"

#include <algorithm>

namespace posenc {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kDescription = 30;  // CLI11's column of descriptions

// Returns the column at which the rest of a line goes on.
size_t IndentOf(std::string_view line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const bool has_description = begin > 0 && begin < kDescription && line.size() > kDescription &&
                               line[kDescription - 1] == ' ' && line[kDescription] != ' ';
  return has_description ? kDescription : begin;
}

void AppendWrapped(std::string_view line, std::string* text) {
  const size_t indent = IndentOf(line);
  size_t room = kWidth;
  while (line.size() > room) {
    const size_t from = room == kWidth ? indent : 0;
    size_t space = line.rfind(' ', room);
    if (space == line.npos || space <= from) space = line.find(' ', room);
    if (space == line.npos) break;
    text->append(line.substr(0, space)).append("\n").append(indent, ' ');
    line.remove_prefix(space + 1);
    room = kWidth - indent;
  }
  text->append(line);
}

}  // namespace

std::string WrapHelp(std::string_view help) {
  std::string text;
  while (!help.empty()) {
    const size_t end = std::min(help.find('\n'), help.size());
    AppendWrapped(help.substr(0, end), &text);
    if (end < help.size()) text += '\n';
    help.remove_prefix(std::min(end + 1, help.size()));
  }
  return text;
}

}  // namespace posenc
