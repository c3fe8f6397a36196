// A candidate's cosines and sines.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/rotary/table_rows.h"

namespace posenc::diagnose {

class CandidateTable {
 public:
  static absl::StatusOr<CandidateTable> Create(const Candidate& candidate, Frequencies arithmetic, const Tokens& tokens,
                                               const Limits& limits);

  size_t pairs() const { return rows_.pairs(); }
  // Writes rows [count, pairs] of `dtype` for tokens [token, token + count).
  void Compute(int64_t token, int64_t count, DType dtype, Operand operand, std::byte* cos, std::byte* sin) const;
  // Position axes, and the axis by which a pair turns; 0 for a given table.
  int64_t axes() const { return static_cast<int64_t>(positions_.size()); }
  int64_t AxisOf(size_t pair) const;
  // The pair's angle at the token's position on an axis, in radians.
  double AngleOn(int64_t axis, int64_t token, size_t pair) const;
  // Magnitude of a pair's angle in radians, before whole turns are removed; 0 for a given table.
  double Angle(int64_t token, size_t pair) const;

 private:
  explicit CandidateTable(TableRows rows) : rows_(std::move(rows)) {}
  void ComputeOwn(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;

  TableRows rows_;
  std::vector<std::vector<double>> positions_;  // [axes][tokens]; applied, before any division
  TableFault fault_ = TableFault::kNone;
  double sign_ = 1;
  double recurrence_ = 0;  // theta^(-2/d)
};

// The candidate's settings. They become given frequencies if it replaces the attention scaling, rounds frequencies or
// exchanges axes; else they are unchanged.
struct Effective {
  RotarySettings settings;
  double position_divisor = 1;  // always 1 under kExact, which divides the frequencies
};
absl::StatusOr<Effective> EffectiveSettings(const Candidate& candidate, Frequencies arithmetic, const Tokens& tokens,
                                            const Limits& limits);

}  // namespace posenc::diagnose
