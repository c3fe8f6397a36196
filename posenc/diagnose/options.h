// Options: frequencies that may have been applied instead of those that were asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "posenc/diagnose/angles.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/prove.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

struct NamedSettings {
  std::string name;  // "layer type \"sliding_attention\""
  RotarySettings settings;
};

// The encoding that should have been applied.
struct Asked {
  bool of_model = false;                   // asked by a config.json; changes only the sentences
  std::optional<RotarySettings> settings;  // completed
  std::string unrotated;                   // the layers in which nothing should rotate; then there are no settings
  std::vector<NamedSettings> others;       // settings of the same model's other layers
  std::vector<int64_t> offsets;            // rotary_offset of each operand
  Direction direction = Direction::kForward;
  std::optional<Precision> precision;   // absent: any
  std::optional<double> tolerance_ulp;  // replaces the usual tolerance

  // With the offsets of some operands only.
  Asked Of(const std::vector<size_t>& operands) const;
  // Allows float32 phases if they may have been asked for.
  Tolerance tolerance() const;

  // Maps a measured rotation to a Direction. 1 (forwards): kForward; -1 (backwards): `direction`, or kTranspose if that
  // is kForward.
  Direction DirectionOf(double turning) const {
    const bool forward = direction == Direction::kForward;
    if ((turning > 0) == forward) return direction;
    return forward ? Direction::kTranspose : Direction::kForward;
  }
  std::string Asks() const { return of_model ? "the model's encoding" : "the settings' encoding"; }
  std::string Wants() const { return of_model ? "but the model specifies" : "but the settings specify"; }
};

// Settings, and how they depart from what was asked.
struct Option {
  RotarySettings settings;
  std::optional<int64_t> seq_len = {};
  TableFault fault = TableFault::kNone;
  std::optional<std::pair<int64_t, int64_t>> exchanged_axes = {};
  std::vector<Departure> departures = {};
  int64_t free_values = 0;  // numbers that were fitted to the data
  int digits = 0;           // DigitsOf() them
};

// Options of width `rotary_dim`. The settings asked for come first, with this width. Some options may be invalid
// settings.
std::vector<Option> OptionsOf(const Asked& asked, int64_t rotary_dim, const Tokens& tokens);

// The option's frequencies, in radians per stated position. Empty if it has none, or none without a length. `seq_len`:
// the length if the option has none of its own.
std::vector<double> PlannedFrequencies(const Option& option, int64_t seq_len, const Limits& limits);

// Options with the settings' frequencies computed by a usual mistake; empty for frequencies that are not computed from
// rope_theta.
std::vector<Option> ScalingMistakes(const RotarySettings& settings, const Tokens& tokens, const Limits& limits);

// Options with frequencies by recipes of other systems that are farther off than float32 phases: ggml's powers.
std::vector<Option> FrequencyRecipes(const RotarySettings& settings, const Tokens& tokens, const Limits& limits);

// Options from measured frequencies: a power law if they follow one, then the frequencies as measured.
std::vector<Option> MeasuredOptions(const Asked& asked, int64_t rotary_dim, const MeasuredFrequencies& measured,
                                    double attention_scaling);

// The settings asked for with one number replaced by the one that fits the measured frequencies best, for each number
// with which they fit within the uncertainty.
std::vector<Option> FittedOptions(const Asked& asked, int64_t rotary_dim, const Angles& angles,
                                  const MeasuredFrequencies& measured, const Tokens& tokens, const Limits& limits);

// Returns 1 for a power of two, and for others about twice the number of their significant decimal digits, or bits if
// these are fewer.
int DigitsOf(double value);

// Adds to each departure of one number the range of numbers that have the same frequencies, unless it is narrow.
void AddRanges(const RotarySettings& settings, const Limits& limits, std::vector<Departure>* departures);

// Returns the nearest number with this many decimal digits. `value` is positive.
double RoundedTo(int digits, double value);
// Returns the nearest number of few digits within the relative `tolerance`, else `value`.
double Snap(double value, double tolerance);
// Formats a number for sentences: integers below 1e15 in full, others with up to 6 significant digits. With `unlike`,
// with as many digits as tell it from that number.
std::string Short(double value);
std::string Short(double value, double unlike);
// The departure of unscaled frequencies, where these parameters were asked for.
Departure ScalingMissing(const RopeParameters& asked);

}  // namespace posenc::diagnose
