// Chart types of the plots, converted to gnuplot commands.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/posenc/plot/gnuplot.h"

namespace posenc::command {

// Colours distinguishable with colour blindness (palette of Okabe and Ito).
inline constexpr char kBlue[] = "#0072B2", kOrange[] = "#D55E00", kGreen[] = "#009E73", kGrey[] = "#999999";

struct Series {
  std::string name;
  const char* colour;
  bool points = false;  // false: a line
  std::vector<double> x, y;
};

struct LineChart {
  std::string title;
  std::string settings;  // below the title
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  // Horizontal line at y = mark_y, labelled mark_name; 0: none.
  double mark_y = 0;
  std::string mark_name;
};

struct Panel {
  std::string title;
  std::vector<double> values;  // [rows, columns], row-major; non-finite values are grey
};

// Heat maps; rows from top to bottom.
struct HeatMaps {
  std::string title;
  std::string settings;
  std::string x_label, y_label, colour_label;
  size_t rows = 0, columns = 0;
  double first_x = 0, first_y = 0;                // coordinates of the first column and row
  bool square = false;                            // square cells
  bool diverging = true;                          // white at 0, blue below, red above; false: dark to bright
  std::vector<Panel> panels;                      // one colour scale for all
  std::vector<std::pair<double, double>> marked;  // cells (x, y) with a ring, in every panel
};

// Maximum number of cells in a picture; more would not be visible.
inline constexpr size_t kMaxCells = 4'000'000;

std::string Commands(const LineChart& chart);
Canvas CanvasOf(const LineChart& chart);
std::string Commands(const HeatMaps& maps);
Canvas CanvasOf(const HeatMaps& maps);

}  // namespace posenc::command
