#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/posenc/plot/charts.h"
#include "tools/posenc/plot/heading.h"

namespace posenc::command {
namespace {

constexpr int kWidth = 900, kHeight = 460;  // without the heading

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
  absl::StrAppend(&commands, "set title ", Quoted(absl::StrJoin(Heading(chart.title, chart.settings, kWidth), "\n")),
                  "\nset xlabel ", Quoted(chart.x_label), "\nset ylabel ", Quoted(chart.y_label),
                  "\nset grid lc rgb '#DDDDDD' lt 1\nset border 3\nset tics nomirror\nset autoscale xfix\n", "set key ",
                  chart.log_y ? "top left" : "top right", " Left reverse\n");
  if (chart.log_x) commands += "set logscale x\nset format x '%.0s%c'\n";
  commands += chart.log_y ? "set logscale y\nset format y '%.0s%c'\n" : "set yrange [*<0:*]\n";
  return commands + plot + "\n";
}

Canvas CanvasOf(const LineChart& chart) {
  const auto lines = static_cast<double>(Heading(chart.title, chart.settings, kWidth).size());
  return {kWidth, kHeight + static_cast<int>(lines * kHeadingLine)};
}

}  // namespace posenc::command
