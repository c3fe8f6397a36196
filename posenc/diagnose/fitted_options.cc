#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/options.h"

namespace posenc::diagnose {
namespace {

struct Parameter {
  const char *name, *code;
  std::optional<double> RopeParameters::*member;
};
constexpr Parameter kParameters[] = {
    {"factor", "FACTOR", &RopeParameters::factor},
    {"rope_theta", "ROPE_THETA", &RopeParameters::rope_theta},
    {"original_max_position_embeddings", "ORIGINAL_LENGTH", &RopeParameters::original_max_position_embeddings},
    {"low_freq_factor", "LOW_FREQ_FACTOR", &RopeParameters::low_freq_factor},
    {"high_freq_factor", "HIGH_FREQ_FACTOR", &RopeParameters::high_freq_factor},
    {"beta_fast", "BETA_FAST", &RopeParameters::beta_fast},
    {"beta_slow", "BETA_SLOW", &RopeParameters::beta_slow},
    {"alpha", "ALPHA", &RopeParameters::alpha},
};

// Fits one number of the settings to measured frequencies.
class Fitter {
 public:
  Fitter(const RotarySettings& base, const Parameter& parameter, const Angles& angles,
         const MeasuredFrequencies& measured, const Tokens& tokens, const Limits& limits)
      : base_(base), parameter_(parameter), angles_(angles), measured_(measured), tokens_(tokens), limits_(limits) {
    if (!tokens.seq_len.empty()) seq_len_ = tokens.seq_len[0];
  }

  // Returns the number; nullopt if none fits within the uncertainties.
  std::optional<double> Fit(double asked) const {
    constexpr int kSteps = 48;        // on each side
    constexpr double kRange = 6;      // powers of two on each side
    double best = 0, least = kWorst;  // logarithm of the ratio to the number asked for
    const auto consider = [&](double at) {
      const double cost = Cost(asked * std::exp2(at), Mean::kOfLogarithms);
      if (cost < least) least = cost, best = at;
    };
    for (int n = -kSteps; n <= kSteps; ++n) consider(kRange * n / kSteps);
    for (double step = kRange / kSteps / 2; step > 1e-8; step /= 2) {
      for (const double at : {best - step, best + step}) consider(at);
    }
    least = Cost(asked * std::exp2(best));
    if (!(least <= kFits)) return std::nullopt;
    if (const std::optional<double> refined = Refine(asked, best, least)) return refined;
    const double value = asked * std::exp2(best);
    // The roundest number that fits about as well.
    for (double tolerance = 0.1; tolerance > 1e-7; tolerance /= 4) {
      const double round = Snap(value, tolerance);
      if (Cost(round) <= std::max(2 * least, 1.0)) return round;
    }
    return value;
  }

 private:
  static constexpr double kWorst = 1e300, kFits = 16, kAgree = 1e-3;

  // Far from position 0 the angles themselves say more than their slopes. Returns the number at which they agree best,
  // near the one that fits the slopes; nullopt if they do not agree, as at shifted positions.
  std::optional<double> Refine(double asked, double best, double least) const {
    if (tokens_.axes() > 1) return std::nullopt;
    double range = 1e-6;
    while (range < 0.1 && Cost(asked * std::exp2(best + range)) <= least + kFits) range *= 2;
    constexpr int kPoints = 128;
    double at = best, residual = Residual(asked * std::exp2(best));
    const auto consider = [&](double other) {
      const double off = Residual(asked * std::exp2(other));
      if (off < residual) residual = off, at = other;
    };
    for (int n = -kPoints; n <= kPoints; ++n) consider(best + range * n / kPoints);
    for (double step = range / kPoints / 2; step > 1e-10; step /= 2) {
      for (const double other : {at - step, at + step}) consider(other);
    }
    if (!(residual <= kAgree)) return std::nullopt;
    const double value = asked * std::exp2(at);
    for (double tolerance = 0.1; tolerance > 1e-9; tolerance /= 4) {
      const double round = Snap(value, tolerance);
      if (Residual(round) <= 1.02 * residual + 1e-12) return round;
    }
    return value;
  }

  // The weighted mean of 1 - cos(error) over the angles, in the better direction.
  double Residual(double value) const {
    const std::optional<std::vector<double>> f = FrequenciesAt(value);
    if (!f) return 2;
    constexpr int64_t kMostTokens = 64;
    const int64_t step = std::max<int64_t>(1, angles_.tokens / kMostTokens);
    double weight = 0, forwards = 0, backwards = 0;
    for (int64_t n = 0; n < angles_.tokens; n += step) {
      InterruptionPoint();
      for (int64_t k = 0; k < angles_.pairs; ++k) {
        const int64_t at = n * angles_.pairs + k;
        if (angles_.weight[at] == 0 || std::abs(angles_.turn[at]) == 0) continue;
        const double angle = std::arg(angles_.turn[at]), wanted = (*f)[k] * tokens_.positions[0][n];
        weight += angles_.weight[at];
        forwards += angles_.weight[at] * (1 - std::cos(angle - wanted));
        backwards += angles_.weight[at] * (1 - std::cos(angle + wanted));
      }
    }
    return weight == 0 ? 2 : std::min(forwards, backwards) / weight;
  }

  std::optional<std::vector<double>> FrequenciesAt(double value) const {
    RotarySettings settings = base_;
    std::get<RopeParameters>(settings.frequencies).*parameter_.member = value;
    const auto rotary = Rotary::Create(settings, Frequencies::kFloat64, limits_);
    if (!rotary.ok() || (rotary->NeedsSeqLen() && seq_len_ == 0)) return std::nullopt;
    const auto plan = rotary->Plan(seq_len_);
    if (!plan.ok() || (*plan)->inv_freq.size() != measured_.pairs.size()) return std::nullopt;
    std::vector<double> f = (*plan)->inv_freq;
    for (double& each : f) each /= (*plan)->position_divisor;
    return f;
  }

  enum class Mean {
    kOfSquares,     // each pair counts for at most 1000
    kOfLogarithms,  // falls towards the minimum from afar, too
  };
  // The mean over pairs of the squared error in units of its uncertainty.
  double Cost(double value, Mean mean = Mean::kOfSquares) const {
    InterruptionPoint();
    const std::optional<std::vector<double>> found = FrequenciesAt(value);
    if (!found) return kWorst;
    double cost = 0;
    int64_t used = 0;
    for (size_t k = 0; k < measured_.pairs.size(); ++k) {
      const MeasuredFrequency& pair = measured_.pairs[k];
      if (!std::isfinite(pair.uncertainty)) continue;
      const double f = (*found)[k];
      const double off = (std::fabs(pair.inv_freq) - std::fabs(f)) / std::max(kRecipe * std::fabs(f), pair.uncertainty);
      cost += mean == Mean::kOfLogarithms ? std::log1p(off * off) : std::min(off * off, 1000.0);
      ++used;
    }
    return used < 2 ? kWorst : cost / static_cast<double>(used);
  }

  const RotarySettings& base_;
  const Parameter& parameter_;
  const Angles& angles_;
  const MeasuredFrequencies& measured_;
  const Tokens& tokens_;
  const Limits& limits_;
  int64_t seq_len_ = 0;
};

}  // namespace

std::vector<Option> FittedOptions(const Asked& asked, int64_t rotary_dim, const Angles& angles,
                                  const MeasuredFrequencies& measured, const Tokens& tokens, const Limits& limits) {
  std::vector<Option> options;
  if (!asked.settings || *asked.settings->rotary_dim != rotary_dim) return options;
  const auto* p = std::get_if<RopeParameters>(&asked.settings->frequencies);
  if (p == nullptr) return options;
  for (const Parameter& parameter : kParameters) {
    const std::optional<double>& wanted = p->*parameter.member;
    if (!wanted || !(*wanted > 0)) continue;
    const std::optional<double> found =
        Fitter(*asked.settings, parameter, angles, measured, tokens, limits).Fit(*wanted);
    if (!found || Short(*found) == Short(*wanted)) continue;
    Option option{*asked.settings};
    std::get<RopeParameters>(option.settings.frequencies).*parameter.member = found;
    option.free_values = 1;
    option.departures = {{parameter.code, fmt::format("{} {} was applied, {} {}", parameter.name, Short(*found),
                                                      asked.Wants(), Short(*wanted))}};
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace posenc::diagnose
