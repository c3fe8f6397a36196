// Chart types of the plots, converted to gnuplot commands.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/posenc/plot/gnuplot.h"

namespace posenc::command {

// Colours distinguishable with colour blindness (palette of Okabe and Ito).
inline constexpr char kBlue[] = "#0072B2", kOrange[] = "#D55E00", kGreen[] = "#009E73", kGrey[] = "#999999",
                      kPink[] = "#CC79A7", kYellow[] = "#E69F00";

struct Series {
  std::string name;
  const char* colour;
  bool points = false;  // false: a line
  std::vector<double> x, y;
  std::vector<double> high;  // an area from y to high if not empty
  bool hollow = false;       // points only
};

// A line at a value of one axis, with its name.
struct Mark {
  double value;
  std::string name;
};

struct LineChart {
  std::string title;
  std::string settings;  // below the title
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  double least_y = 0;  // with log_y: lower end of the axis; 0: that of the data
  bool key_below = false;
  std::vector<Mark> marks_x, marks_y;  // vertical and horizontal lines
  int width = 0, height = 0;           // of the picture in pixels; 0: 900 pixels wide
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
  int width = 0, height = 0;                      // of the picture in pixels; 0: as large as the cells need
};

// Maximum number of cells in a picture; more would not be visible.
inline constexpr size_t kMaxCells = 4'000'000;

std::string Commands(const LineChart& chart);
Canvas CanvasOf(const LineChart& chart);
std::string Commands(const HeatMaps& maps);
Canvas CanvasOf(const HeatMaps& maps);

}  // namespace posenc::command
