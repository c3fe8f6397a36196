// Candidate: one hypothesis of how the data were made, complete enough to be computed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// Deviations of frameworks' cos/sin tables that no setting describes.
enum class TableFault {
  kNone,
  kInvFreqBF16,  // frequencies rounded to bfloat16, e.g. when a whole model is cast
  kInvFreqFP16,
  kPositionsBF16,  // positions rounded to bfloat16: above 256 they collide
  kPositionsFP16,
  kAnglesBF16,  // position, frequency, and their product rounded to bfloat16
  kAnglesFP16,
  kTableBF16,  // cosines and sines rounded to bfloat16, whatever the tensor's type
  kTableFP16,
  kTableE4M3,  // FP8
  kTableE5M2,
  kTableInt8,   // multiples of 1/127
  kRecurrence,  // angle of pair i+1 = angle of pair i * theta^(-2/d), in float32
  kExchanged,   // cosines and sines exchanged
};

// The xPos scale of an operand: its own, the other operand's (the reciprocal), or none.
enum class ScaledAs { kItself, kOther, kNone };

// One difference between what was applied and what was asked for.
struct Departure {
  std::string code;     // UPPER_SNAKE_CASE; proto/posenc/v1/diagnose.proto lists them
  std::string message;  // one sentence without the full stop
};

struct Candidate {
  RotarySettings settings;       // rotary_dim and both pairings are set
  std::vector<int64_t> offsets;  // rotary_offset of each operand
  Direction direction = Direction::kForward;
  // Replaces the evidence's positions, [axes][tokens]; the shift is then not read.
  std::shared_ptr<const std::vector<std::vector<double>>> positions;
  double position_shift = 0;
  int turns = 1;                                              // times that rows are rotated; 0: they are copied
  std::optional<double> attention_scaling;                    // replaces the settings' own
  std::optional<int64_t> seq_len;                             // replaces the evidence's
  std::optional<std::pair<int64_t, int64_t>> exchanged_axes;  // pairs of each axis use the other's positions
  TableFault fault = TableFault::kNone;
  std::array<ScaledAs, 2> scaled_as = {};  // per operand, if settings have xPos
  int64_t free_values = 0;                 // numbers that were fitted to the data
  int digits = 0;                          // of the fitted numbers: few if they are round
  std::vector<Departure> departures;
  std::vector<std::vector<Departure>> aliases;  // other departures that give the same frequencies
};

}  // namespace posenc::diagnose
