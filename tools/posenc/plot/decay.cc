// `posenc plot decay`: how far attention reaches, by RoFormer's bound and by the plain cosine sum.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"

namespace posenc::command {
namespace {

struct DecayPlotFlags {
  PictureFlags picture;
  AnalysisFlags analysis;
  int64_t max_distance = 0;  // 0: as far as the model reaches
  bool log_x = false;
};

constexpr double kNoise = 1000;  // tokens: beyond them the score is noise, of which only the envelope is drawn
constexpr int kInBucket = 32;    // distances of one point of the envelope
constexpr int64_t kFarthest = int64_t{1} << 40;

// Integer distances, ascending: evenly spaced on the axis up to kNoise, then kInBucket random-looking ones for each
// point of the envelope.
std::vector<double> Distances(const DecayPlotFlags& flags) {
  constexpr int64_t kMost = 1000, kBuckets = 150;
  const auto last = static_cast<double>(flags.max_distance), first = std::min(last, kNoise);
  const auto at = [&](double from, double to, double part) {
    return flags.log_x ? from * std::pow(to / from, part) : from + (to - from) * part;
  };
  std::vector<double> distances = {0};
  const auto add = [&](double distance) {
    if (std::round(distance) > distances.back()) distances.push_back(std::round(distance));
  };
  for (int64_t n = 1; n <= kMost; ++n) add(at(flags.log_x ? 1 : 0, first, static_cast<double>(n) / kMost));
  for (int64_t n = 0; last > kNoise && n < kBuckets * kInBucket; ++n) {
    const double golden = std::fmod(0.618034 * static_cast<double>(n), 1);
    add(at(first, last, (static_cast<double>(n) + golden) / (kBuckets * kInBucket)));
  }
  add(last);
  return distances;
}

// Adds a point to the line, or, of noise, to the range of the current bucket.
void Add(double x, double y, bool noise, bool begins, Series* line, Series* range) {
  if (!noise) {
    line->x.push_back(x);
    line->y.push_back(y);
  } else if (begins) {
    range->x.push_back(x);
    range->y.push_back(y);
    range->high.push_back(y);
  } else {
    range->y.back() = std::min(range->y.back(), y);
    range->high.back() = std::max(range->high.back(), y);
  }
}

// Adds one model's bound and score, both over the score at distance 0.
void AddCurves(const std::string& name, const char* bound_colour, const char* score_colour,
               const std::vector<double>& distances, const v1::AnalyzeResponse& response, LineChart* chart) {
  const std::string of = name.empty() ? "" : name + ": ";
  const std::vector<double> sums = Numbers(response.cosine_sum()), bounds = Numbers(response.decay_bound());
  Series bound{.name = of + "bound: sum of |S_j| (RoFormer, 3.4.3)", .colour = bound_colour};
  Series score{.name = of + "|score| of equal, constant q and k", .colour = score_colour};
  // Beyond kNoise; the legend explains the areas by their colours.
  Series bound_range{.colour = bound_colour}, score_range{.colour = score_colour};
  // The answer's bound is a mean over the pairs; the sum bounds the score.
  const double whole = static_cast<double>(response.pairs_size()) / sums[0];
  int in_bucket = 0;
  for (size_t n = 0; n < distances.size(); ++n) {
    if (chart->log_x && distances[n] == 0) continue;
    const double value = std::max(chart->least_y, std::fabs(sums[n] / sums[0]));
    const bool noise = distances[n] > kNoise, begins = noise && in_bucket++ % kInBucket == 0;
    Add(distances[n], bounds[n] * whole, noise, begins, &bound, &bound_range);
    Add(distances[n], value, noise, begins, &score, &score_range);
  }
  for (Series* series : {&bound_range, &bound, &score_range, &score}) chart->series.push_back(std::move(*series));
}

// Chooses the largest distance, if it was not given: the model's length, on a logarithmic axis if that is long.
absl::Status ChooseDistance(v1::AnalyzeRequest request, DecayPlotFlags* flags, Session* session) {
  if (flags->max_distance > 0) return absl::OkStatus();
  SetDistances({0}, &request);
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session->backend().Analyze(request));
  flags->max_distance = 256;
  for (const Mark& mark : Lengths("", request, response.info())) {
    const double length = std::min(mark.value, static_cast<double>(kFarthest));
    flags->max_distance = std::max(flags->max_distance, static_cast<int64_t>(length));
  }
  session->Assume("--max-distance", absl::StrCat(flags->max_distance));
  if (static_cast<double>(flags->max_distance) > kNoise && !flags->log_x) {
    flags->log_x = true;
    session->Assume("--log-x", "true");
  }
  return absl::OkStatus();
}

absl::Status RunDecayPlot(DecayPlotFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, flags.analysis.WhatIsMissing()));
  POSENC_ASSIGN_OR_RETURN(v1::AnalyzeRequest request, flags.analysis.Get());
  POSENC_RETURN_IF_ERROR(ChooseDistance(request, &flags, &session));
  const std::vector<double> distances = Distances(flags);
  SetDistances(distances, &request);
  POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse response, session.backend().Analyze(request));

  LineChart chart;
  chart.title = flags.analysis.Title("Long-term decay", response.info());
  chart.settings = Subject(request, response.info());
  chart.x_label = "distance of query and key (tokens)";
  if (static_cast<double>(flags.max_distance) > kNoise) chart.x_label += "; beyond 1,000 the range of nearby values";
  chart.y_label = "over the score at distance 0";
  chart.log_x = flags.log_x;
  chart.log_y = true;
  chart.least_y = 1e-3;
  chart.key_below = true;
  POSENC_ASSIGN_OR_RETURN(const std::optional<v1::AnalyzeRequest> overlay, flags.analysis.GetOverlay(request));
  const std::string name = overlay ? flags.analysis.name() : "";
  std::vector<Mark> lengths = Lengths(name, request, response.info());
  AddCurves(name, kOrange, kBlue, distances, response, &chart);
  if (overlay) {
    POSENC_ASSIGN_OR_RETURN(const v1::AnalyzeResponse other, session.backend().Analyze(*overlay));
    absl::StrAppend(&chart.title, " and ", TypedName(flags.analysis.overlay_name(), other.info()));
    AddCurves(flags.analysis.overlay_name(), kPink, kGreen, distances, other, &chart);
    AddMarks(Lengths(flags.analysis.overlay_name(), *overlay, other.info()), &lengths);
  }
  for (Mark& mark : lengths) {
    if (mark.value <= static_cast<double>(flags.max_distance)) chart.marks_x.push_back(std::move(mark));
  }
  return flags.picture.Deliver(session, response, chart);
}

}  // namespace

Subcommand AddDecayPlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("decay", "Upper bound of a score, and cosine sum, over distance");
  const auto flags = std::make_shared<DecayPlotFlags>();
  flags->picture.Add(*app);
  app->add_option("--max-distance", flags->max_distance, "Largest distance; default: the model's length, or 256")
      ->type_name("N")
      ->check(InRange(int64_t{1}, kFarthest));
  app->add_flag("--log-x", flags->log_x, "Use a logarithmic axis for distances");
  flags->analysis.Add(*app);
  return {app, [flags](Session& session) { return RunDecayPlot(*flags, session); }};
}

}  // namespace posenc::command
