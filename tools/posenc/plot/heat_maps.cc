#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/posenc/plot/charts.h"
#include "tools/posenc/plot/heading.h"

namespace posenc::command {
namespace {

// ColorBrewer's RdBu, and viridis: perceptually uniform, also in greyscale (for RdBu, on each side of white).
constexpr const char* kBelow[] = {"#053061", "#2166AC", "#4393C3", "#92C5DE", "#D1E5F0"};
constexpr const char* kAbove[] = {"#FDDBC7", "#F4A582", "#D6604D", "#B2182B", "#67001F"};
constexpr const char* kViridis[] = {"#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C",
                                    "#28AE80", "#5EC962", "#ADDC30", "#FDE725"};

std::string PaletteCommand(const std::vector<std::string>& colours) {
  std::vector<std::string> steps;
  for (size_t n = 0; n < colours.size(); ++n) steps.push_back(absl::StrFormat("%d '%s'", n, colours[n]));
  return absl::StrCat("set palette maxcolors 64 defined (", absl::StrJoin(steps, ", "), ")\n");
}

struct Range {
  double low = INFINITY, high = -INFINITY;
};

Range FiniteRange(const HeatMaps& maps) {
  Range range;
  for (const Panel& panel : maps.panels) {
    for (const double value : panel.values) {
      if (!std::isfinite(value)) continue;
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  return range.low <= range.high ? range : Range{0, 0};
}

// Returns the commands for the palette and its value range. The palette has 64 steps, too small to see, because that
// makes files much smaller.
std::string ColourCommands(const HeatMaps& maps) {
  Range range = FiniteRange(maps);
  std::vector<std::string> colours;
  if (maps.diverging) {
    range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
    if (range.low < 0 && range.high > 0) range.low = -(range.high = std::max(range.high, -range.low));
    if (range.low < 0) colours.insert(colours.end(), std::begin(kBelow), std::end(kBelow));
    colours.push_back("#FFFFFF");
    if (range.high > 0 || range.low == 0) colours.insert(colours.end(), std::begin(kAbove), std::end(kAbove));
  } else {
    colours.assign(std::begin(kViridis), std::end(kViridis));
  }
  if (range.low == range.high) range.high = range.low + 1;
  return absl::StrFormat("%sset cbrange [%.17g:%.17g]\nset cblabel %s\n", PaletteCommand(colours), range.low,
                         range.high, Quoted(maps.colour_label));
}

// Positions and sizes of the parts of the picture, in pixels.
struct Frame {
  size_t across, down;  // number of panels in a row, in a column
  double panel_width, panel_height;
  double left = 80, top, between_columns = 75, between_rows = 80;
  double right, bottom;  // edges of the last panels
  double width, height;
  std::vector<std::string> heading;
};

// Returns a whole number of pixels per cell; otherwise some cells would be wider than others.
double CellSide(double wanted, size_t cells) { return std::max(1.0, std::floor(wanted / static_cast<double>(cells))); }

Frame FrameOf(const HeatMaps& maps) {
  const size_t panels = maps.panels.size();
  Frame frame;
  frame.across = static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(panels))));
  frame.down = (panels + frame.across - 1) / frame.across;
  const auto across = static_cast<double>(frame.across), down = static_cast<double>(frame.down);
  // With a given size, the panels are as large as the heading, labels and colours leave room for.
  double wanted = panels == 1 ? 540 : 270, wanted_height = wanted, largest = 2000;
  if (maps.width > 0) {
    const auto lines = static_cast<double>(Heading(maps.title, maps.settings, maps.width).size());
    wanted = largest = (maps.width - frame.left - 125 - (across - 1) * frame.between_columns) / across;
    wanted_height = (maps.height - 14 - kHeadingLine * lines - (maps.panels[0].title.empty() ? 0 : 20) - 55 -
                     (down - 1) * frame.between_rows) /
                    down;
  }
  const double square_side = std::min(CellSide(wanted, maps.columns), CellSide(wanted_height, maps.rows));
  const double cell_width = maps.square ? square_side : CellSide(wanted, maps.columns);
  const double cell_height = maps.square ? square_side : CellSide(wanted_height, maps.rows);
  frame.panel_width = std::min(largest, cell_width * static_cast<double>(maps.columns));
  frame.panel_height = std::min(maps.width > 0 ? wanted_height : largest, cell_height * static_cast<double>(maps.rows));
  frame.right = frame.left + across * frame.panel_width + (across - 1) * frame.between_columns;
  frame.width = maps.width > 0 ? maps.width : std::max(640.0, frame.right + 125);
  frame.heading = Heading(maps.title, maps.settings, frame.width);
  frame.top = 14 + kHeadingLine * static_cast<double>(frame.heading.size()) + (maps.panels[0].title.empty() ? 0 : 20);
  frame.bottom = frame.top + down * frame.panel_height + (down - 1) * frame.between_rows;
  frame.height = maps.width > 0 ? maps.height : frame.bottom + 55;
  return frame;
}

std::string Data(const HeatMaps& maps) {
  std::string data;
  for (size_t n = 0; n < maps.panels.size(); ++n) {
    absl::StrAppendFormat(&data, "$p%d << EOD\n", n);
    for (size_t row = 0; row < maps.rows; ++row) {
      for (size_t column = 0; column < maps.columns; ++column) {
        const double value = maps.panels[n].values[row * maps.columns + column];
        if (std::isfinite(value)) {
          absl::StrAppendFormat(&data, "%.5g ", value);
        } else {
          data += "NaN ";
        }
      }
      data += "\n";
    }
    data += "EOD\n";
  }
  if (maps.marked.empty()) return data;
  data += "$marked << EOD\n";
  for (const auto& [x, y] : maps.marked) absl::StrAppendFormat(&data, "%g %g\n", x, y);
  return data + "EOD\n";
}

}  // namespace

std::string Commands(const HeatMaps& maps) {
  const Frame frame = FrameOf(maps);
  const double width = frame.width, height = frame.height;
  std::string commands = Data(maps) + ColourCommands(maps);
  absl::StrAppendFormat(
      &commands, "set multiplot layout %d,%d title %s margins %.9g,%.9g,%.9g,%.9g spacing %.9g,%.9g\n", frame.down,
      frame.across, Quoted(absl::StrJoin(frame.heading, "\n")), frame.left / width, frame.right / width,
      1 - frame.bottom / height, 1 - frame.top / height, frame.between_columns / width, frame.between_rows / height);
  absl::StrAppendFormat(&commands, "set colorbox user origin screen %g, screen %g size screen %g, screen %g\n",
                        (frame.right + 18) / width, 1 - frame.bottom / height, 16 / width,
                        (frame.bottom - frame.top) / height);
  absl::StrAppend(&commands, "set xlabel ", Quoted(maps.x_label), " offset 0,0.4\nset ylabel ", Quoted(maps.y_label),
                  " offset 0.6,0\nset tics out nomirror\nset tics scale 0.5\nunset key\n",
                  "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#BBBBBB' fs solid noborder\n");
  absl::StrAppendFormat(&commands, "set xrange [%.17g:%.17g]\nset yrange [%.17g:%.17g]\n", maps.first_x - 0.5,
                        maps.first_x + static_cast<double>(maps.columns) - 0.5,
                        maps.first_y + static_cast<double>(maps.rows) - 0.5, maps.first_y - 0.5);
  for (size_t n = 0; n < maps.panels.size(); ++n) {
    absl::StrAppendFormat(&commands,
                          "set title %s offset 0,-0.6\n"
                          "plot $p%d matrix using ($1 + %.17g):($2 + %.17g):3 with image%s\nunset colorbox\n",
                          Quoted(maps.panels[n].title), n, maps.first_x, maps.first_y,
                          maps.marked.empty() ? "" : ", $marked with points pt 6 ps 1.8 lw 2 lc rgb 'white'");
  }
  return commands + "unset multiplot\n";
}

Canvas CanvasOf(const HeatMaps& maps) {
  const Frame frame = FrameOf(maps);
  // A PNG of so many cells is large. With few colours, cells without a colour would not be distinguishable, because
  // only the smoothing terminal gives them a colour of their own.
  bool few_colours = maps.rows * maps.columns > 100'000;
  for (const Panel& panel : maps.panels) {
    for (const double value : panel.values) few_colours = few_colours && std::isfinite(value);
  }
  return {static_cast<int>(std::lround(frame.width)), static_cast<int>(std::lround(frame.height)), few_colours};
}

}  // namespace posenc::command
