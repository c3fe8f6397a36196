#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/posenc/plot/charts.h"
#include "tools/posenc/plot/heading.h"

namespace posenc::command {
namespace {

constexpr int kWidth = 900, kHeight = 460;  // without the heading

double WidthOf(const LineChart& chart) { return chart.width > 0 ? chart.width : kWidth; }

// Lines of a legend below the plot beyond the first two, for which kHeight has room.
int MoreLegendLines(const LineChart& chart) {
  constexpr double kSample = 90;  // width of a sample and of the space between columns, pixels
  int names = 0;
  size_t longest = 1;
  const auto count = [&](const std::string& name) {
    names += name.empty() ? 0 : 1;
    longest = std::max(longest, name.size());
  };
  for (const Series& series : chart.series) count(series.x.empty() ? "" : series.name);
  for (const auto* marks : {&chart.marks_x, &chart.marks_y}) {
    for (const Mark& mark : *marks) count(mark.name);
  }
  const int columns = std::max(1, static_cast<int>(kWidth / (static_cast<double>(longest) * kCharacter + kSample)));
  return chart.key_below ? std::max(0, (names + columns - 1) / columns - 2) : 0;
}

}  // namespace

std::string Commands(const LineChart& chart) {
  std::string commands, plot;
  for (const Series& series : chart.series) {
    if (series.x.empty()) continue;
    const size_t n = &series - chart.series.data();
    absl::StrAppendFormat(&commands, "$s%d << EOD\n", n);
    for (size_t i = 0; i < series.x.size(); ++i) {
      absl::StrAppendFormat(&commands, "%.9g %.9g %.9g\n", series.x[i], series.y[i],
                            series.high.empty() ? series.y[i] : series.high[i]);
    }
    commands += "EOD\n";
    const char* style = !series.high.empty() ? "filledcurves fs transparent solid 0.4 noborder"
                        : !series.points     ? "lines lw 2"
                        : series.hollow      ? "points pt 6 ps 0.9"
                                             : "points pt 7 ps 0.7";
    absl::StrAppendFormat(&plot, "%s$s%d using 1:2%s with %s lc rgb '%s' title %s", plot.empty() ? "plot " : ", ", n,
                          series.high.empty() ? "" : ":3", style, series.colour, Quoted(series.name));
  }
  const int dashes[] = {2, 4, 5};
  for (size_t i = 0; i < chart.marks_y.size(); ++i) {
    absl::StrAppendFormat(&plot, ", %.17g with lines dt %d lw 1 lc rgb '#444444' title %s", chart.marks_y[i].value,
                          dashes[i % 3], Quoted(chart.marks_y[i].name));
  }
  for (size_t i = 0; i < chart.marks_x.size(); ++i) {
    const auto& [value, name] = chart.marks_x[i];
    const std::string line = absl::StrFormat("dt %d lw 1 lc rgb '#444444'", dashes[i % 3]);
    absl::StrAppendFormat(&commands, "set arrow from first %.17g, graph 0 to first %.17g, graph 1 nohead %s\n", value,
                          value, line);
    absl::StrAppend(&plot, ", keyentry with lines ", line, " title ", Quoted(name));
  }
  absl::StrAppend(&commands, "set title ",
                  Quoted(absl::StrJoin(Heading(chart.title, chart.settings, WidthOf(chart)), "\n")), "\nset xlabel ",
                  Quoted(chart.x_label), chart.key_below ? " offset 0,0.4" : "", "\nset ylabel ", Quoted(chart.y_label),
                  "\nset grid lc rgb '#DDDDDD' lt 1\nset border 3\nset tics nomirror\nset autoscale xfix\n", "set key ",
                  chart.key_below ? "below height 1"
                  : chart.log_y   ? "top left"
                                  : "top right",
                  " Left reverse\n");
  if (chart.log_x) commands += "set logscale x\nset format x '%.0s%c'\n";
  if (chart.log_y && chart.least_y > 0) {
    absl::StrAppendFormat(&commands, "set logscale y\nset format y '%%g'\nset yrange [%.17g:*]\n", chart.least_y);
  } else {
    commands += chart.log_y ? "set logscale y\nset format y '%.0s%c'\n" : "set yrange [*<0:*]\n";
  }
  return commands + plot + "\n";
}

Canvas CanvasOf(const LineChart& chart) {
  if (chart.width > 0) return {chart.width, chart.height};
  const auto lines = static_cast<double>(Heading(chart.title, chart.settings, kWidth).size()) + MoreLegendLines(chart);
  return {kWidth, kHeight + static_cast<int>(lines * kHeadingLine)};
}

}  // namespace posenc::command
