#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/diagnose/options.h"

namespace posenc::diagnose {

double RoundedTo(int digits, double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - digits + 1);
  return unit >= 1 ? std::round(value / unit) * unit : std::round(value / unit) / std::round(1 / unit);
}

double Snap(double value, double tolerance) {
  for (int digits = 1; digits <= 6; ++digits) {
    const double rounded = RoundedTo(digits, value);
    if (std::fabs(rounded / value - 1) <= tolerance) return rounded;
  }
  return value;
}

namespace {

// How the power law departs from what was asked for.
Departure LawDeparture(const Asked& asked, const RopeParameters& found) {
  const auto* settings = std::get_if<RopeParameters>(&asked.settings->frequencies);
  const RopeParameters wanted = settings == nullptr ? RopeParameters() : *settings;
  const bool same_type = wanted.rope_type == found.rope_type, same_theta = wanted.rope_theta == found.rope_theta;
  const double found_factor = found.factor.value_or(1), wanted_factor = wanted.factor.value_or(1);
  const std::string theta = Short(*found.rope_theta, wanted.rope_theta.value_or(*found.rope_theta));
  const std::string factor = Short(found_factor, wanted_factor);
  if (same_type && wanted.factor == found.factor && wanted.rope_theta && !same_theta) {
    return {"ROPE_THETA", fmt::format("rope_theta {} was applied, {} {}", theta, asked.Wants(),
                                      Short(*wanted.rope_theta, *found.rope_theta))};
  }
  if (same_type && same_theta && wanted.factor) {
    return {"FACTOR",
            fmt::format("factor {} was applied, {} {}", factor, asked.Wants(), Short(wanted_factor, found_factor))};
  }
  if (found.factor) {
    return {"SCALING_TYPE", fmt::format("frequencies of rope_theta {}, divided by {}, were applied", theta, factor)};
  }
  if (same_theta && !same_type) return ScalingMissing(wanted);
  return {"ROPE_THETA", fmt::format("unscaled frequencies of rope_theta {} were applied", theta)};
}

// The law 1 / (factor * rope_theta^(2i/d)), as wide and with the axes of `base`.
Option LawOption(const Asked& asked, const RotarySettings& base, double rope_theta, double factor) {
  Option option{base};
  option.free_values = factor == 1 ? 1 : 2;
  option.digits = DigitsOf(rope_theta) + (factor == 1 ? 0 : DigitsOf(factor));
  RopeParameters p{.rope_type = factor == 1 ? "default" : "linear", .rope_theta = rope_theta};
  if (factor != 1) p.factor = factor;
  if (const auto* wanted = asked.settings ? std::get_if<RopeParameters>(&asked.settings->frequencies) : nullptr) {
    p.mrope_section = wanted->mrope_section;
    p.mrope_order = wanted->mrope_order;
  }
  if (asked.settings) option.departures = {LawDeparture(asked, p)};
  option.settings.frequencies = std::move(p);
  return option;
}

}  // namespace

std::vector<Option> MeasuredOptions(const Asked& asked, int64_t rotary_dim, const MeasuredFrequencies& measured,
                                    double attention_scaling) {
  std::vector<Option> options;
  RotarySettings base;
  base.rotary_dim = rotary_dim;
  base.input_pairing = base.output_pairing = Pairing::kHalfSplit;
  if (const auto law = FindPowerLaw(measured); law && law->rope_theta > 1 && law->factor > 0.01) {
    // The errors of float32 phases may be alike at all tokens, so the numbers may be farther off than the measurement's
    // noise says: rounder ones are tried, too.
    constexpr double kPhases = 3e-5;
    std::optional<std::pair<double, double>> last;
    for (const double least : {kRecipe, kPhases}) {
      const std::pair numbers(Snap(law->rope_theta, std::max(4 * law->theta_uncertainty, least)),
                              Snap(law->factor, std::max(4 * law->factor_uncertainty, least)));
      if (numbers != last) options.push_back(LawOption(asked, base, numbers.first, numbers.second));
      last = numbers;
    }
  }
  GivenFrequencies given;
  given.attention_scaling = Snap(attention_scaling, kRecipe);
  for (const MeasuredFrequency& f : measured.pairs) {
    given.inv_freq.push_back(f.inv_freq);
    given.axis.push_back(f.axis);
  }
  if (std::all_of(given.axis.begin(), given.axis.end(), [](int64_t axis) { return axis == 0; })) given.axis.clear();
  Option option{base};
  option.free_values = static_cast<int64_t>(given.inv_freq.size());
  option.settings.frequencies = std::move(given);
  option.departures = {{"UNKNOWN_FREQUENCIES", "the frequencies match no known scaling: they are given as measured"}};
  options.push_back(std::move(option));
  return options;
}

}  // namespace posenc::diagnose
