// Pictures, drawn by gnuplot as a process of its own.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::command {

enum class PictureFormat { kPng, kSvg };

// By the file's name; a usage error where it ends with neither .png nor .svg.
absl::StatusOr<PictureFormat> FormatOf(const std::string& path);

struct Canvas {
  int width, height;         // in pixels; an SVG can be scaled
  bool few_colours = false;  // at most 256, without smoothing: a PNG is then a fraction as large
};

// Draws what gnuplot's commands say, which name no terminal and no output, and writes it to the file, which appears
// whole or not at all. FAILED_PRECONDITION where there is no gnuplot.
absl::Status Draw(const std::string& commands, const Canvas& canvas, PictureFormat format, const std::string& path);

// Text as a gnuplot expression: a string in which nothing is expanded; line feeds stay, other control characters become
// spaces.
std::string Quoted(const std::string& text);

}  // namespace posenc::command
