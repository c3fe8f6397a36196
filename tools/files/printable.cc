#include "tools/files/printable.h"

#include <cstddef>

namespace posenc {

std::string Printable(std::string_view text, std::string_view kept) {
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool two = text[i] == '\xc2' && i + 1 < text.size() && (text[i + 1] & 0x60) == 0;
    const bool control = two || static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f;
    printable += control && kept.find(text[i]) == std::string_view::npos ? '?' : text[i];
    i += two;
  }
  return printable;
}

}  // namespace posenc
