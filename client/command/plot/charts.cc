#include "client/command/plot/charts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace posenc::command {
namespace {

// ColorBrewer's RdBu, and viridis: both grow evenly to the eye, in grey as well (each side of white does).
constexpr const char* kBelow[] = {"#053061", "#2166AC", "#4393C3", "#92C5DE", "#D1E5F0"};
constexpr const char* kAbove[] = {"#FDDBC7", "#F4A582", "#D6604D", "#B2182B", "#67001F"};
constexpr const char* kViridis[] = {"#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C",
                                    "#28AE80", "#5EC962", "#ADDC30", "#FDE725"};

std::string PaletteCommand(const std::vector<std::string>& colours) {
  std::vector<std::string> steps;
  for (size_t n = 0; n < colours.size(); ++n) steps.push_back(absl::StrFormat("%d '%s'", n, colours[n]));
  return absl::StrCat("set palette defined (", absl::StrJoin(steps, ", "), ")\n");
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

// The palette and the range that it stands for.
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

size_t PanelColumns(const HeatMaps& maps) {
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(maps.panels.size()))));
}
size_t PanelRows(const HeatMaps& maps) { return (maps.panels.size() + PanelColumns(maps) - 1) / PanelColumns(maps); }

int TitleLines(const std::string& title) { return static_cast<int>(std::count(title.begin(), title.end(), '\n')) + 1; }

}  // namespace

std::string Commands(const LineChart& chart) {
  std::string commands, plot;
  for (const Series& series : chart.series) {
    if (series.x.empty()) continue;
    const size_t n = &series - chart.series.data();
    absl::StrAppendFormat(&commands, "$s%d << EOD\n", n);
    for (size_t i = 0; i < series.x.size(); ++i) {
      absl::StrAppendFormat(&commands, "%.9g %.9g\n", series.x[i], series.y[i]);
    }
    commands += "EOD\n";
    absl::StrAppendFormat(&plot, "%s$s%d using 1:2 with %s lc rgb '%s' title %s", plot.empty() ? "plot " : ", ", n,
                          series.points ? "points pt 7 ps 0.7" : "lines lw 2", series.colour, Quoted(series.name));
  }
  if (chart.mark_y > 0) {
    absl::StrAppendFormat(&plot, ", %.17g with lines dt 2 lw 1 lc rgb '#444444' title %s", chart.mark_y,
                          Quoted(chart.mark_name));
  }
  absl::StrAppend(&commands, "set title ", Quoted(chart.title), "\nset xlabel ", Quoted(chart.x_label), "\nset ylabel ",
                  Quoted(chart.y_label), "\nset grid lc rgb '#DDDDDD' lt 1\nset border 3\n",
                  "set tics nomirror\nset key top left Left reverse\nset autoscale xfix\n");
  if (chart.log_x) commands += "set logscale x\n";
  if (chart.log_y) commands += "set logscale y\nset format y '%.0s%c'\n";
  return commands + plot + "\n";
}

PictureSize SizeOf(const LineChart& chart) { return {900, 480 + 18 * TitleLines(chart.title)}; }

std::string Commands(const HeatMaps& maps) {
  const PictureSize size = SizeOf(maps);
  const double width = size.width, height = size.height;
  std::string commands = ColourCommands(maps);
  for (size_t n = 0; n < maps.panels.size(); ++n) {
    absl::StrAppendFormat(&commands, "$p%d << EOD\n", n);
    for (size_t row = 0; row < maps.rows; ++row) {
      for (size_t column = 0; column < maps.columns; ++column) {
        const double value = maps.panels[n].values[row * maps.columns + column];
        absl::StrAppendFormat(&commands, std::isfinite(value) ? "%.5g " : "NaN ", value);
      }
      commands += "\n";
    }
    commands += "EOD\n";
  }
  if (!maps.marked.empty()) {
    commands += "$marked << EOD\n";
    for (const auto& [x, y] : maps.marked) absl::StrAppendFormat(&commands, "%g %g\n", x, y);
    commands += "EOD\n";
  }

  // Margins by hand: the same for all panels, and room for one colour box beside them.
  absl::StrAppendFormat(&commands, "set multiplot layout %d,%d title %s margins %g,%g,%g,%g spacing %g,%g\n",
                        PanelRows(maps), PanelColumns(maps), Quoted(maps.title), 75 / width, 1 - 120 / width,
                        55 / height, 1 - (35 + 18.0 * TitleLines(maps.title)) / height, 60 / width, 62 / height);
  absl::StrAppendFormat(&commands, "set colorbox user origin screen %g, screen %g size screen %g, screen %g\n",
                        1 - 105 / width, 60 / height, 16 / width, 0.6);
  absl::StrAppend(&commands, "set xlabel ", Quoted(maps.x_label), " offset 0,0.4\nset ylabel ", Quoted(maps.y_label),
                  " offset 0.6,0\nset tics out nomirror\nset tics scale 0.5\nunset key\n",
                  "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#BBBBBB' fs solid noborder\n");
  absl::StrAppendFormat(&commands, "set xrange [%.17g:%.17g]\nset yrange [%.17g:%.17g]\n", maps.first_x - 0.5,
                        maps.first_x + static_cast<double>(maps.columns) - 0.5,
                        maps.first_y + static_cast<double>(maps.rows) - 0.5, maps.first_y - 0.5);
  if (maps.square) {
    absl::StrAppendFormat(&commands, "set size ratio %g\n",
                          static_cast<double>(maps.rows) / static_cast<double>(maps.columns));
  }
  for (size_t n = 0; n < maps.panels.size(); ++n) {
    absl::StrAppendFormat(&commands,
                          "set title %s offset 0,-0.6\n"
                          "plot $p%d matrix using ($1 + %.17g):($2 + %.17g):3 with image%s\nunset colorbox\n",
                          Quoted(maps.panels[n].title), n, maps.first_x, maps.first_y,
                          maps.marked.empty() ? "" : ", $marked with points pt 6 ps 1.5 lw 1.5 lc rgb 'black'");
  }
  return commands + "unset multiplot\n";
}

PictureSize SizeOf(const HeatMaps& maps) {
  const bool single = maps.panels.size() == 1;
  const int cell = single ? 560 : 270;
  const int columns = static_cast<int>(PanelColumns(maps)), rows = static_cast<int>(PanelRows(maps));
  return {135 + columns * (cell + 60), 60 + 18 * TitleLines(maps.title) + rows * (cell + 50)};
}

std::string Wrapped(const std::string& text) {
  std::string wrapped;
  size_t length = 0;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ", "))) {
    if (!wrapped.empty()) {
      const bool full = length + part.size() > 110;
      wrapped += full ? ",\n" : ", ";
      if (full) length = 0;
    }
    absl::StrAppend(&wrapped, part);
    length += part.size() + 2;
  }
  return wrapped;
}

}  // namespace posenc::command
