#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/options.h"

namespace posenc::diagnose {
namespace {

constexpr int kMostBits = 10, kMostDigits = 6;  // of a round number

// A number of the settings, or the scaling length.
struct Parameter {
  const char *name, *code;
  std::optional<double> RopeParameters::*member;  // null for the numbers of "dynamic" outside RopeParameters
  bool is_whole = false;
};
constexpr Parameter kScalingLength = {"scaling length", "SCALING_LENGTH", nullptr, true};
constexpr Parameter kLongest = {"max_position_embeddings", "ORIGINAL_LENGTH", nullptr, true};
// If several numbers fit equally well, the verdict names the first of them in this order.
constexpr Parameter kParameters[] = {
    kScalingLength,
    {"factor", "FACTOR", &RopeParameters::factor},
    {"alpha", "ALPHA", &RopeParameters::alpha},
    {"rope_theta", "ROPE_THETA", &RopeParameters::rope_theta},
    kLongest,
    {"original_max_position_embeddings", "ORIGINAL_LENGTH", &RopeParameters::original_max_position_embeddings, true},
    {"low_freq_factor", "LOW_FREQ_FACTOR", &RopeParameters::low_freq_factor},
    {"high_freq_factor", "HIGH_FREQ_FACTOR", &RopeParameters::high_freq_factor},
    {"beta_fast", "BETA_FAST", &RopeParameters::beta_fast},
    {"beta_slow", "BETA_SLOW", &RopeParameters::beta_slow},
};

bool IsLength(const Parameter& parameter) { return std::string_view(parameter.code) == kScalingLength.code; }
bool IsLongest(const Parameter& parameter) { return parameter.member == nullptr && !IsLength(parameter); }

// Absent if frequencies do not depend on it.
std::optional<double> NumberOf(const Parameter& parameter, const RotarySettings& settings, const Tokens& tokens) {
  const auto& p = std::get<RopeParameters>(settings.frequencies);
  if (parameter.member != nullptr) return p.*parameter.member;
  if (p.rope_type != "dynamic" || tokens.seq_len.empty()) return std::nullopt;
  return IsLength(parameter) ? static_cast<double>(tokens.seq_len[0]) : settings.max_position_embeddings;
}

void SetNumber(const Parameter& parameter, double value, Option* option) {
  if (parameter.is_whole) value = std::round(value);
  if (parameter.member != nullptr) {
    std::get<RopeParameters>(option->settings.frequencies).*parameter.member = value;
  } else if (IsLength(parameter)) {
    option->seq_len = static_cast<int64_t>(value);
  } else {
    option->settings.max_position_embeddings = value;
  }
}

// Returns the nearest number with this many significant bits.
double OfBits(double value, int bits) {
  const double unit = std::exp2(std::floor(std::log2(value)) - bits + 1);
  return std::round(value / unit) * unit;
}

// Returns the number near `value` of fewest bits or decimal digits that fits; `value` if none of few does. Those of at
// most `fewest_bits` bits come first.
template <class Function>
double Roundest(double value, const Function& fits, int fewest_bits = 0) {
  for (int n = 1; n <= fewest_bits; ++n) {
    if (const double round = OfBits(value, n); fits(round)) return round;
  }
  for (int n = 1; n <= kMostBits; ++n) {
    if (const double round = OfBits(value, n); fits(round)) return round;
    if (n > kMostDigits) continue;
    if (const double round = RoundedTo(n, value); fits(round)) return round;
  }
  return value;
}

// Fits one number to measured frequencies.
class Fitter {
 public:
  Fitter(const RotarySettings& base, const Parameter& parameter, const Angles& angles,
         const MeasuredFrequencies& measured, const Tokens& tokens, const Limits& limits)
      : base_(base),
        parameter_(parameter),
        angles_(angles),
        measured_(measured),
        tokens_(tokens),
        limits_(limits),
        pairs_(angles.HeaviestPairs(kSearchedPairs)) {
    if (!tokens.seq_len.empty()) seq_len_ = tokens.seq_len[0];
  }

  // Returns the number; nullopt if none fits within the uncertainties.
  std::optional<double> Fit(double asked) const {
    constexpr int kSteps = 64;        // on each side
    constexpr double kRange = 8;      // powers of two on each side
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
    return Round(asked * std::exp2(best), [&](double round) { return Cost(round) <= std::max(2 * least, 1.0); });
  }

 private:
  static constexpr double kWorst = 1e300, kFits = 16, kAgree = 1e-3;

  // Far from position 0 the angles themselves say more than their slopes. Returns the number at which they agree best,
  // near the one that fits the slopes; nullopt if they do not agree, as at shifted positions.
  std::optional<double> Refine(double asked, double best, double least) const {
    if (tokens_.axes() > 1 || angles_.tokens == 0) return std::nullopt;
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
    return Round(asked * std::exp2(at), [&](double round) { return Residual(round) <= 1.02 * residual + 1e-12; });
  }

  // Returns the roundest number that fits about as well as `value`, or differs from it by no more than float32 recipes
  // do. Lengths are usually multiples of powers of two.
  template <class Function>
  double Round(double value, const Function& fits) const {
    constexpr int kFewBits = 4;
    const auto is_near = [&](double round) { return std::fabs(round / value - 1) <= kRecipe || fits(round); };
    return Roundest(value, is_near, parameter_.is_whole ? kFewBits : 0);
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
      for (const int64_t k : pairs_) {
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
    // Lengths up to the longest of "dynamic" have the same frequencies: no number is known from them.
    if (IsLength(parameter_) && value <= base_.max_position_embeddings) return std::nullopt;
    if (IsLongest(parameter_) && value >= static_cast<double>(seq_len_)) return std::nullopt;
    Option option{base_};
    SetNumber(parameter_, value, &option);
    std::vector<double> f = PlannedFrequencies(option, seq_len_, limits_);
    if (f.size() != measured_.pairs.size()) return std::nullopt;
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
    for (const int64_t k : pairs_) {
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
  const std::vector<int64_t> pairs_;  // those that are compared
  int64_t seq_len_ = 0;
};

// For a departure of one number, in words: the range of numbers that have the same frequencies. Empty if it is narrow.
std::string SameFrequencies(const RotarySettings& settings, std::string_view code, const Limits& limits) {
  const auto parameter = std::find_if(std::begin(kParameters), std::end(kParameters),
                                      [&](const Parameter& one) { return one.member != nullptr && one.code == code; });
  const auto* p = std::get_if<RopeParameters>(&settings.frequencies);
  if (p == nullptr || parameter == std::end(kParameters) || !(p->*parameter->member)) return "";
  const double value = *(p->*parameter->member);
  const auto frequencies = [&](double at) {
    Option option{settings};
    std::get<RopeParameters>(option.settings.frequencies).*parameter->member = at;
    return PlannedFrequencies(option, 0, limits);
  };
  const std::vector<double> own = frequencies(value);
  if (own.empty()) return "";
  // The farthest number that has them, up or down; infinite if all have them.
  const auto farthest = [&](double sign) {
    constexpr double kFar = 12;  // powers of two
    double inside = 0, outside = kFar;
    if (frequencies(value * std::exp2(sign * kFar)) == own) return sign * std::numeric_limits<double>::infinity();
    while (outside - inside > 1e-9) {
      const double middle = (inside + outside) / 2;
      (frequencies(value * std::exp2(sign * middle)) == own ? inside : outside) = middle;
    }
    return value * std::exp2(sign * inside);
  };
  double first = farthest(-1), last = farthest(1);
  if (parameter->is_whole) first = std::ceil(first), last = std::floor(last);
  constexpr double kKnown = 1.01;
  if (last <= kKnown * first) return "";
  if (std::isinf(first) && std::isinf(last)) return "any number has the same frequencies";
  if (std::isinf(first)) return fmt::format("any number up to {} has the same frequencies", Short(last));
  if (std::isinf(last)) return fmt::format("any number from {} on has the same frequencies", Short(first));
  return fmt::format("any number from {} to {} has the same frequencies", Short(first), Short(last));
}

}  // namespace

std::vector<double> PlannedFrequencies(const Option& option, int64_t seq_len, const Limits& limits) {
  const auto rotary = Rotary::Create(option.settings, Frequencies::kFloat64, limits);
  const int64_t length = option.seq_len.value_or(seq_len);
  if (!rotary.ok() || (rotary->NeedsSeqLen() && length < 1)) return {};
  const auto plan = rotary->Plan(length);
  if (!plan.ok()) return {};
  std::vector<double> f = (*plan)->inv_freq;
  for (double& each : f) each /= (*plan)->position_divisor;
  return f;
}

std::vector<Option> FittedOptions(const Asked& asked, int64_t rotary_dim, const Angles& angles,
                                  const MeasuredFrequencies& measured, const Tokens& tokens, const Limits& limits) {
  std::vector<Option> options;
  if (!asked.settings || *asked.settings->rotary_dim != rotary_dim) return options;
  if (!std::holds_alternative<RopeParameters>(asked.settings->frequencies)) return options;
  for (const Parameter& parameter : kParameters) {
    const std::optional<double> wanted = NumberOf(parameter, *asked.settings, tokens);
    if (!wanted || !(*wanted > 0)) continue;
    std::optional<double> found = Fitter(*asked.settings, parameter, angles, measured, tokens, limits).Fit(*wanted);
    if (found && parameter.is_whole) found = std::round(*found);
    if (!found || Short(*found) == Short(*wanted)) continue;
    Option option{*asked.settings};
    SetNumber(parameter, *found, &option);
    option.free_values = 1;
    option.digits = DigitsOf(*found);
    std::string what =
        IsLength(parameter)
            ? fmt::format("frequencies are those of length {}, {}", Short(*found),
                          tokens.seq_len.size() > 1 ? "for every sequence" : "not " + Short(*wanted))
            : fmt::format("{} {} was applied, {} {}", parameter.name, Short(*found), asked.Wants(), Short(*wanted));
    option.departures = {{parameter.code, std::move(what)}};
    options.push_back(std::move(option));
  }
  return options;
}

int DigitsOf(double value) {
  int digits = 0;
  Roundest(value, [&](double round) { return ++digits, std::fabs(round / value - 1) < 1e-12; });
  return digits;
}

void AddRanges(const RotarySettings& settings, const Limits& limits, std::vector<Departure>* departures) {
  for (Departure& departure : *departures) {
    const std::string range = SameFrequencies(settings, departure.code, limits);
    if (!range.empty()) departure.message += fmt::format(" ({})", range);
  }
}

}  // namespace posenc::diagnose
