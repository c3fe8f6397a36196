// Draws pictures with gnuplot, run as a child process.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::command {

enum class PictureFormat { kPng, kSvg };

// Returns the format that the file name's suffix selects, PNG for a stream, or a usage error if it is neither.
absl::StatusOr<PictureFormat> FormatOf(const std::string& path);

struct Canvas {
  int width, height;         // pixels; an SVG can be scaled
  bool few_colours = false;  // at most 256, no anti-aliasing: makes a PNG much smaller
};

// Runs the gnuplot commands, which must set neither terminal nor output, and writes the picture to the file atomically.
// Returns FAILED_PRECONDITION if gnuplot is not installed.
absl::Status Draw(const std::string& commands, const Canvas& canvas, PictureFormat format, const std::string& path);

// Quotes text as a gnuplot string expression in which nothing is expanded. Line feeds are kept; other control
// characters become spaces.
std::string Quoted(const std::string& text);

}  // namespace posenc::command
