// `posenc plot frequencies`: the wavelength of each pair, beside the unscaled one.
#include <cmath>
#include <memory>
#include <numbers>

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

LineChart Chart(const v1::AnalyzeRequest& request, const v1::AnalyzeResponse& response) {
  LineChart chart;
  chart.title = "Wavelength of each pair";
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
  const v1::RopeParameters& parameters = response.info().plan().rotary().rope_parameters();
  if (parameters.has_original_max_position_embeddings()) {
    chart.mark_y = parameters.original_max_position_embeddings();
    chart.mark_name = absl::StrFormat("original_max_position_embeddings, %g", chart.mark_y);
  }
  return chart;
}

absl::Status RunFrequenciesPlot(const FrequenciesPlotFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session));
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeRequest request, flags.analysis.Get());
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));
  return flags.picture.Deliver(session, response, Chart(request, response));
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
