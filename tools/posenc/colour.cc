#include "tools/posenc/colour.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace posenc::command {
namespace {

bool HasColours(std::FILE* stream) {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && (refused == nullptr || *refused == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace

std::string Coloured(std::FILE* stream, Colour colour, const std::string& text) {
  return HasColours(stream) ? absl::StrCat("\033[", static_cast<int>(colour), "m", text, "\033[0m") : text;
}

}  // namespace posenc::command
