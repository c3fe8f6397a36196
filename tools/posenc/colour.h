// Colours on a terminal; not if the variable NO_COLOR is set (no-color.org), or TERM is dumb.
#pragma once

#include <cstdio>
#include <string>

namespace posenc::command {

enum class Colour { kBold = 1, kRed = 31, kGreen = 32, kYellow = 33, kCyan = 36 };

// Returns the text as it is, or in the colour if the stream is a terminal that has colours.
std::string Coloured(std::FILE* stream, Colour colour, const std::string& text);

}  // namespace posenc::command
