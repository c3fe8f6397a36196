// Heading of a picture.
#pragma once

#include <string>
#include <vector>

namespace posenc::command {

inline constexpr double kHeadingLine = 19;  // height of a heading line, pixels

// Returns the title's lines, then the settings, wrapped after commas to `width` pixels.
std::vector<std::string> Heading(const std::string& title, const std::string& settings, double width);

}  // namespace posenc::command
