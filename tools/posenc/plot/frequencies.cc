// `posenc plot frequencies`: the wavelength of each pair, beside the unscaled one.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "posenc/base/status.h"
#include "tools/posenc/plot/plot.h"

namespace posenc::command {
namespace {

struct FrequenciesPlotFlags {
  PictureFlags picture;
  AnalysisFlags analysis;
};

// Returns the points of the pairs that were scaled in the given way.
Series PairsOf(const v1::AnalyzeResponse& response, v1::PairScaling scaling, const char* name, const char* colour) {
  Series series{.colour = colour, .points = true};
  for (int i = 0; i < response.pairs_size(); ++i) {
    if (response.pairs(i).scaling() != scaling) continue;
    series.x.push_back(i);
    series.y.push_back(response.pairs(i).wavelength());
  }
  series.name = absl::StrFormat("%s (%d pairs)", name, series.x.size());
  return series;
}

// Name of a position's axis and of its unit.
std::string AxisName(int64_t axis, int64_t axes, bool pixels) {
  if (axes == 2)
    return axis == 0 ? pixels ? "height, in pixels" : "row, in patches"
           : pixels  ? "width, in pixels"
                     : "column, in patches";
  if (axes == 3) return axis == 0 ? "time, in frames" : axis == 1 ? "height, in patches" : "width, in patches";
  return absl::StrFormat("axis %d", axis);
}

// One series per axis of the positions.
std::vector<Series> PairsByAxis(const v1::AnalyzeResponse& response, int64_t axes) {
  constexpr const char* kColours[] = {kBlue, kOrange, kGreen, kPink, kYellow};
  const bool pixels = response.info().plan().rotary().rope_parameters().rope_type() == "pixel";
  std::vector<Series> all;
  for (int64_t axis = 0; axis < axes; ++axis) {
    Series series{.colour = kColours[axis % 5], .points = true};
    for (int i = 0; i < response.pairs_size(); ++i) {
      if (response.pairs(i).axis() != axis || !std::isfinite(response.pairs(i).wavelength())) continue;
      series.x.push_back(i);
      series.y.push_back(response.pairs(i).wavelength());
    }
    series.name = absl::StrFormat("%s (%d pairs)", AxisName(axis, axes, pixels), series.x.size());
    all.push_back(std::move(series));
  }
  return all;
}

LineChart Chart(const v1::AnalyzeRequest& request, const v1::AnalyzeResponse& response, const AnalysisFlags& flags) {
  LineChart chart;
  chart.title = flags.Title("Wavelength of each pair", response.info());
  chart.settings = Subject(request, response.info());
  chart.x_label = "pair";
  chart.y_label = "wavelength (tokens)";
  chart.log_y = true;
  Series unscaled{.name = "unscaled", .colour = kGrey};
  for (int i = 0; i < response.pairs_size(); ++i) {
    const v1::PairAnalysis& pair = response.pairs(i);
    if (!pair.has_ratio()) continue;
    unscaled.x.push_back(i);
    unscaled.y.push_back(2 * std::numbers::pi / std::fabs(pair.unscaled_inv_freq()));
  }
  chart.series = {unscaled,
                  PairsOf(response, v1::PAIR_SCALING_UNSPECIFIED, "wavelength", kBlue),
                  PairsOf(response, v1::PAIR_SCALING_KEPT, "kept", kBlue),
                  PairsOf(response, v1::PAIR_SCALING_MIXED, "mixed: another ratio", kGreen),
                  PairsOf(response, v1::PAIR_SCALING_INTERPOLATED, "interpolated: divided by factor", kOrange),
                  PairsOf(response, v1::PAIR_SCALING_STOPPED, "stopped, not drawn", kGrey)};
  int64_t axes = 1;
  for (const v1::PairAnalysis& pair : response.pairs()) axes = std::max(axes, pair.axis() + 1);
  if (axes > 1) {
    chart.series = PairsByAxis(response, axes);
    chart.y_label = "wavelength (positions of the pair's axis)";
    chart.key_below = true;
  } else {
    chart.marks_y = Lengths(flags.has_overlay() ? flags.name() : "", request, response.info());
  }
  return chart;
}

absl::Status RunFrequenciesPlot(const FrequenciesPlotFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, flags.analysis.WhatIsMissing()));
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeRequest request, flags.analysis.Get());
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));
  LineChart chart = Chart(request, response, flags.analysis);
  POSENC_ASSIGN_OR_RETURN(const std::optional<v1::AnalyzeRequest> overlay, flags.analysis.GetOverlay(request));
  if (overlay) {
    POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse other, session.backend().Analyze(*overlay));
    const std::string name = TypedName(flags.analysis.overlay_name(), other.info());
    absl::StrAppend(&chart.title, " and ", name);
    Series pairs{.name = absl::StrFormat("overlay: %s (%d pairs)", name, other.pairs_size()),
                 .colour = kPink,
                 .points = true,
                 .hollow = true};
    for (int i = 0; i < other.pairs_size(); ++i) {
      pairs.x.push_back(i);
      pairs.y.push_back(other.pairs(i).wavelength());
    }
    chart.series.push_back(std::move(pairs));
    chart.key_below = true;
    AddMarks(Lengths(flags.analysis.overlay_name(), *overlay, other.info()), &chart.marks_y);
  }
  return flags.picture.Deliver(session, response, chart);
}

}  // namespace

Subcommand AddFrequenciesPlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("frequencies", "Wavelength of each pair, scaled and unscaled");
  const auto flags = std::make_shared<FrequenciesPlotFlags>();
  flags->picture.Add(*app);
  flags->analysis.Add(*app);
  return {app, [flags](Session& session) { return RunFrequenciesPlot(*flags, session); }};
}

}  // namespace posenc::command
