// The lines above a picture.
#pragma once

#include <string>
#include <vector>

namespace posenc::command {

inline constexpr double kHeadingLine = 19;  // pixels

// The title, then the settings in lines that fit into so many pixels, broken after commas.
std::vector<std::string> Heading(const std::string& title, const std::string& settings, double width);

}  // namespace posenc::command
