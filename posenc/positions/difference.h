// Compares the position ids of another system with the model's and names the difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/positions/rules.h"

namespace posenc {

// Tokens begin .. end-1 of each sequence, or of all packed tokens.
struct TokenChunk {
  int64_t begin, end;
};

// Ids [axes, B, tokens of the chunk].
struct GivenPositionIds {
  int64_t axes = 1;
  std::vector<double> ids;
  std::optional<std::vector<double>> deltas;
};

enum class PositionFault {
  kNone,
  kCounters,
  kAxesExchanged,
  kDelta,
  kRestart,
  kSecondsIgnored,
  kPaddingCounted,
  kOffset,
  kSpanCounted,
  kOther,
};

struct PositionMismatch {
  int64_t sequence, token, axis;
  double expected, given;
};

struct PositionsComparison {
  PositionFault fault = PositionFault::kNone;
  std::string sentence;
  int64_t differing = 0;
  std::optional<PositionMismatch> first;
};

// `expected` is CountPositions() of the same rule, model and tokens; `given` has the ids of the chunk's tokens.
// MISMATCH unless it has as many axes, or one, and as many deltas; errors name the field within GivenPositions.
absl::StatusOr<PositionsComparison> ComparePositions(const PositionRule& rule, const ConfigObject& model,
                                                     const TokenDescription& tokens, const CountedPositions& expected,
                                                     const TokenChunk& chunk, const GivenPositionIds& given,
                                                     const Limits& limits);

}  // namespace posenc
