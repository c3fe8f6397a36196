// The kinds of picture that plots are made of, as gnuplot's commands.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/posenc/plot/gnuplot.h"

namespace posenc::command {

// Colours that people who confuse some can tell apart (Okabe and Ito's).
inline constexpr char kBlue[] = "#0072B2", kOrange[] = "#D55E00", kGreen[] = "#009E73", kGrey[] = "#999999";

struct Series {
  std::string name;
  const char* colour;
  bool points = false;  // or a line
  std::vector<double> x, y;
};

struct LineChart {
  std::string title;
  std::string settings;  // below the title
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  // A line across the picture, with a name; 0: none.
  double mark_y = 0;
  std::string mark_name;
};

struct Panel {
  std::string title;
  std::vector<double> values;  // [rows, columns]; what is not finite stays grey
};

// Values by colour; rows from top to bottom.
struct HeatMaps {
  std::string title;
  std::string settings;
  std::string x_label, y_label, colour_label;
  size_t rows = 0, columns = 0;
  double first_x = 0, first_y = 0;                // of the first column and row
  bool square = false;                            // cells as high as wide
  bool diverging = true;                          // white at 0, blue below, red above; or from dark to bright
  std::vector<Panel> panels;                      // all of the same scale
  std::vector<std::pair<double, double>> marked;  // cells (x, y) with a ring, in every panel
};

// What a picture can show: more cells are no more visible.
inline constexpr size_t kMaxCells = 4'000'000;

std::string Commands(const LineChart& chart);
Canvas CanvasOf(const LineChart& chart);
std::string Commands(const HeatMaps& maps);
Canvas CanvasOf(const HeatMaps& maps);

}  // namespace posenc::command
