// The frequencies that may have been applied in place of those that were asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/frequencies.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

struct NamedSettings {
  std::string name;  // "layer type \"sliding_attention\""
  RotarySettings settings;
};

// What should have been applied.
struct Asked {
  bool of_model = false;                   // a config.json says it: for sentences
  std::optional<RotarySettings> settings;  // completed
  std::vector<NamedSettings> others;       // of the same model's other layers
  std::vector<int64_t> offsets;            // rotary_offset of each operand
  Direction direction = Direction::kForward;
  std::optional<Precision> precision;  // absent: any

  // 1: positions turn pairs forwards; -1: backwards.
  Direction DirectionOf(double turning) const {
    const bool forward = direction == Direction::kForward;
    if ((turning > 0) == forward) return direction;
    return forward ? Direction::kTranspose : Direction::kForward;
  }
  std::string Asks() const { return of_model ? "what the model asks for" : "what the settings ask for"; }
  std::string Wants() const { return of_model ? "the model wants" : "the settings want"; }
};

// Settings, and how they depart from what was asked.
struct Option {
  RotarySettings settings;
  std::optional<int64_t> seq_len = {};
  TableFault fault = TableFault::kNone;
  std::optional<std::pair<int64_t, int64_t>> exchanged_axes = {};
  std::vector<Departure> departures = {};
};

// Of `rotary_dim`; what was asked comes first, if it has that width. Some of them may turn out to be no settings at
// all.
std::vector<Option> OptionsOf(const Asked& asked, int64_t rotary_dim, const Tokens& tokens);

// Of frequencies that follow one power law, or none that is known.
std::vector<Option> MeasuredOptions(const Asked& asked, int64_t rotary_dim, const MeasuredFrequencies& measured,
                                    double attention_scaling);

// How a number is written in sentences: whole ones in full, others in as few digits as tell them from their neighbours
// by 1e-5.
std::string Short(double value);

}  // namespace posenc::diagnose
