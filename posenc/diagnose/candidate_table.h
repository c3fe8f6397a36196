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
  // Rows [count, pairs] of `dtype` for tokens [token, token + count).
  void Compute(int64_t token, int64_t count, DType dtype, Operand operand, std::byte* cos, std::byte* sin) const;

 private:
  explicit CandidateTable(TableRows rows) : rows_(std::move(rows)) {}
  void ComputeOwn(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;

  TableRows rows_;
  TableFault fault_ = TableFault::kNone;
  double sign_ = 1;
  double recurrence_ = 0;  // theta^(-2/d)
};

// The candidate's settings with its own attention scaling and rounded frequencies, as frequencies; else as they are.
struct Effective {
  RotarySettings settings;
  double position_divisor = 1;  // never under kExact, where the frequencies are divided
};
absl::StatusOr<Effective> EffectiveSettings(const Candidate& candidate, Frequencies arithmetic, const Tokens& tokens,
                                            const Limits& limits);

}  // namespace posenc::diagnose
