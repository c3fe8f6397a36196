// `posenc plot similarity`: similarity of two positions, over their distance or between the patches of an image.
#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"

namespace posenc::command {
namespace {

struct SimilarityPlotFlags {
  PictureFlags picture;
  AnalysisFlags analysis;
  int64_t max_distance = 128;
  v1::Positions grid;  // only segments is used
};

absl::Status OverDistance(const SimilarityPlotFlags& flags, v1::AnalyzeRequest request, Session& session) {
  std::vector<double> distances;
  for (int64_t m = -flags.max_distance; m <= flags.max_distance; ++m) distances.push_back(static_cast<double>(m));
  SetDistances(distances, &request);
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));
  LineChart chart;
  chart.title = flags.analysis.Title("Similarity of two positions", response.info());
  chart.settings = Subject(request, response.info());
  chart.x_label = "distance (positions)";
  const double scale = request.sinusoidal().has_scale() ? request.sinusoidal().scale() : 1;
  chart.y_label = request.has_sinusoidal() ? "dot product of the encodings" : "cosine sum over pairs";
  Series series{.name = chart.y_label, .colour = kBlue, .x = distances, .y = Numbers(response.cosine_sum())};
  for (double& y : series.y) y *= scale * scale;
  chart.series = {series};
  POSENC_ASSIGN_OR_RETURN(const std::optional<v1::AnalyzeRequest> overlay, flags.analysis.GetOverlay(request));
  if (overlay) {
    POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse other, session.backend().Analyze(*overlay));
    absl::StrAppend(&chart.title, " and ", TypedName(flags.analysis.overlay_name(), other.info()));
    chart.series[0].name = flags.analysis.name();
    chart.series.push_back(
        {.name = flags.analysis.overlay_name(), .colour = kPink, .x = distances, .y = Numbers(other.cosine_sum())});
  }
  return flags.picture.Deliver(session, response, chart);
}

// Returns the number of axes of a position under these settings.
absl::StatusOr<int64_t> Axes(const v1::AnalyzeRequest& request, Session& session) {
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));
  int64_t axes = 1;
  for (const v1::PairAnalysis& pair : response.pairs()) axes = std::max(axes, pair.axis() + 1);
  return axes;
}

// Plots the similarity of the middle patch to all others. Patches are at (row, column) on the last two axes; if
// positions have only one axis, they are numbered row by row.
absl::Status BetweenPatches(const SimilarityPlotFlags& flags, v1::AnalyzeRequest request, Session& session) {
  const auto& segments = flags.grid.segments();
  if (segments.segment_size() != 1 || segments.segment(0).grid().size_size() != 2 ||
      segments.segment(0).grid().start_size() > 0 || segments.segment(0).grid().step_size() > 0) {
    return UsageError("--grid: give the rows and columns of patches, such as 32x32");
  }
  const int64_t rows = segments.segment(0).grid().size(0), columns = segments.segment(0).grid().size(1);
  if (rows < 3 || columns < 3 || rows > 1000 || columns > 1000) {
    return UsageError("--grid: must be 3x3 to 1000x1000 patches");
  }
  if (flags.analysis.has_overlay()) return UsageError("--overlay: must be absent with --grid, which draws one model");
  const int64_t row = rows / 2, column = columns / 2;
  POSENC_ASSIGN_OR_RETURN(const int64_t axes, Axes(request, session));
  if (axes == 1) {
    request.mutable_distances()->set_offset(-(row * columns + column));
    request.set_count(rows * columns);
  } else {
    v1::PositionGrid& grid = *request.mutable_distances()->mutable_segments()->add_segment()->mutable_grid();
    for (int64_t axis = 0; axis < axes - 2; ++axis) {
      grid.add_size(1);
      grid.add_start(0);
    }
    grid.add_size(rows);
    grid.add_size(columns);
    grid.add_start(static_cast<double>(-row));
    grid.add_start(static_cast<double>(-column));
  }
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));

  std::vector<double> values = Numbers(response.cosine_sum());
  for (double& value : values) value /= static_cast<double>(response.pairs_size());
  const auto at = [&](int64_t r, int64_t c) { return values[r * columns + c]; };
  HeatMaps maps;
  maps.title = absl::StrFormat(
      "Similarity to the ringed patch; patches %s\nIts right-hand neighbour: %.3f. The one below it: %.3f",
      axes == 1 ? "are numbered row by row" : "stand at (row, column)", at(row, column + 1), at(row + 1, column));
  maps.settings = Subject(request, response.info());
  maps.x_label = "column of the patch";
  maps.y_label = "row of the patch";
  maps.colour_label = "mean over pairs of cos(angle)";
  maps.rows = rows;
  maps.columns = columns;
  maps.square = true;
  maps.marked = {{static_cast<double>(column), static_cast<double>(row)}};
  maps.panels = {{"", std::move(values)}};
  return flags.picture.Deliver(session, response, maps);
}

absl::Status RunSimilarityPlot(const SimilarityPlotFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, flags.analysis.WhatIsMissing()));
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeRequest request, flags.analysis.Get());
  return IsSet(flags.grid) ? BetweenPatches(flags, request, session) : OverDistance(flags, request, session);
}

}  // namespace

Subcommand AddSimilarityPlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("similarity", "Dot products over distance, or between the patches of an image");
  const auto flags = std::make_shared<SimilarityPlotFlags>();
  flags->picture.Add(*app);
  app->add_option("--max-distance", flags->max_distance, "Largest distance on both sides; default 128")
      ->type_name("N")
      ->check(InRange(int64_t{1}, int64_t{100'000}));
  AddFieldFlags(*app, "Patches", &flags->grid,
                {{"segments", "Rows and columns of an image's patches, such as 32x32", "--grid"}});
  flags->analysis.Add(*app);
  return {app, [flags](Session& session) { return RunSimilarityPlot(*flags, session); }};
}

}  // namespace posenc::command
