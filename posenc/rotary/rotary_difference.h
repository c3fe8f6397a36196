// Comparison of two rotary embeddings: frequencies, and the tables of cosines and sines that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc {

// Positions that the tables are searched at: 0 .. kComparedPositions - 1.
inline constexpr int64_t kComparedPositions = 131072;
// Largest number of pairs times positions that one request searches. For usual
// frequencies two sides take about half a second on one core. Entries of xPos and of frequencies near the limits of
// float64 take much longer; the call's deadline interrupts them.
inline constexpr int64_t kMostComparedEntries = int64_t{1} << 26;

// A rotary embedding and its frequencies at one sequence length. Both must outlive the comparison.
struct PlannedRotary {
  const Rotary* rotary;  // with Frequencies::kExact
  const RotaryPlan* plan;

  size_t pairs() const { return static_cast<size_t>(rotary->rotary_dim() / 2); }
  double inv_freq(size_t pair) const { return plan->inv_freq[pair]; }
  // Position axis by which the pair rotates.
  int64_t axis(size_t pair) const { return plan->axis.empty() ? 0 : plan->axis[pair]; }
};

struct RotaryDifference {
  // Largest absolute difference of the float64 cosines and sines at a position, and the pair where it occurs.
  struct AtPosition {
    int64_t position;
    double difference;
    size_t pair;
  };

  // Pairs whose frequency or axis differs, ascending; pairs that only one side has are among them. Empty if either side
  // has a given table.
  std::vector<size_t> pairs;
  bool same_scaling = false;  // attention scaling and xPos are equal
  bool same_table = false;    // neither side has a given table, or both have one with equal entries
  // First position at which a float32 cosine or sine differs, also by what a tolerance counts as equal. Absent: none
  // was found.
  std::optional<int64_t> first_position;
  int64_t searched_positions = 0;  // all positions below it were searched
  std::vector<AtPosition> at;      // positions 4095, 32767, 131071; empty if the tables are equal

  // Largest relative difference of frequencies and scaling that a tolerance counted as equal; 0 without a tolerance.
  double tolerated = 0;

  bool same() const { return pairs.empty() && same_scaling && same_table; }
};

// Relative difference of frequencies and scalings below which files with float32 numbers are the same: a file's own
// divisors, computed in float32, are up to some 10 * 2^-24 from the formula's (docs/compare.md).
inline constexpr double kFloat32Tolerance = 0x1p-20;

// Compares the tables of the pairs that both sides have, at positions that are equal on all axes. Cosines and sines are
// multiplied by the attention scaling and, with xPos, by the scale of q. `entries_left` is the number of pairs times
// positions that may still be searched, of kMostComparedEntries; what was searched is subtracted. Returns the status
// of `cancelled`. Frequencies and attention scalings are equal if they differ by at most `tolerance`, relative to the
// larger one, or, with a tolerance, if both are below 2^-64: a GGUF stops a pair by a large divisor, not by 0.
absl::StatusOr<RotaryDifference> CompareRotary(const PlannedRotary& a, const PlannedRotary& b, double tolerance,
                                               int64_t* entries_left, WorkPool& pool, const Cancellation& cancelled);

// True if the numbers are equal, or differ by at most `tolerance` relative to the larger one. `tolerated` becomes the
// largest relative difference that was accepted.
bool SameWithin(double tolerance, double a, double b, double* tolerated);

}  // namespace posenc
