// `posenc plot decay`: how far attention reaches, by RoFormer's bound and by the plain cosine sum.
#include <cmath>
#include <memory>

#include "posenc/base/status.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"

namespace posenc::command {
namespace {

struct DecayPlotFlags {
  PictureFlags picture;
  AnalysisFlags analysis;
  int64_t max_distance = 256;
  bool log_x = false;
};

// Returns integer distances evenly spaced on the axis, at most 2001: a picture shows no more columns.
std::vector<double> Distances(const DecayPlotFlags& flags) {
  constexpr int64_t kMost = 2000;
  const auto last = static_cast<double>(flags.max_distance);
  std::vector<double> distances = {0};
  for (int64_t n = 1; n <= kMost; ++n) {
    const double part = static_cast<double>(n) / kMost;
    const double distance = std::round(flags.log_x ? std::pow(last, part) : last * part);
    if (distance > distances.back()) distances.push_back(distance);
  }
  return distances;
}

absl::Status RunDecayPlot(const DecayPlotFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session));
  POSENC_ASSIGN_OR_RETURN(v1::AnalyzeRequest request, flags.analysis.Get());
  const std::vector<double> distances = Distances(flags);
  SetDistances(distances, &request);
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));

  LineChart chart;
  chart.title = "Long-term decay";
  chart.settings = Subject(request, response.info());
  chart.x_label = "distance of query and key (tokens)";
  chart.y_label = "each over its value at distance 0";
  chart.log_x = flags.log_x;
  const std::vector<double> sums = Numbers(response.cosine_sum()), bounds = Numbers(response.decay_bound());
  Series bound{.name = "bound: mean |S_j| (RoFormer, 3.4.3)", .colour = kOrange};
  Series sum{.name = "cosine sum: score of equal, constant q and k", .colour = kBlue};
  for (size_t n = 0; n < distances.size(); ++n) {
    if (flags.log_x && distances[n] == 0) continue;
    for (Series* series : {&bound, &sum}) series->x.push_back(distances[n]);
    bound.y.push_back(bounds[n] / bounds[0]);
    sum.y.push_back(sums[n] / sums[0]);
  }
  chart.series = {sum, bound};
  return flags.picture.Deliver(session, response, chart);
}

}  // namespace

Subcommand AddDecayPlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("decay", "Upper bound of a score, and cosine sum, over distance");
  const auto flags = std::make_shared<DecayPlotFlags>();
  flags->picture.Add(*app);
  app->add_option("--max-distance", flags->max_distance, "Largest distance; default 256")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40).description(""));
  app->add_flag("--log-x", flags->log_x, "Use a logarithmic axis for distances");
  flags->analysis.Add(*app);
  return {app, [flags](Session& session) { return RunDecayPlot(*flags, session); }};
}

}  // namespace posenc::command
