// Heading of a picture.
#pragma once

#include <string>
#include <vector>

namespace posenc::command {

inline constexpr double kHeadingLine = 19;  // height of a line of the heading or the legend, pixels
inline constexpr double kCharacter = 8.2;   // width of a character of the terminals' font, pixels

// Returns the title's lines, then the settings, wrapped after commas to `width` pixels.
std::vector<std::string> Heading(const std::string& title, const std::string& settings, double width);

}  // namespace posenc::command
