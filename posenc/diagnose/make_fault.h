// A fault from an explanation of some rows: its sentence, its parts, and what gives the same bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {

class FaultMaker {
 public:
  // `reference`: what was asked for; may be null. Both must outlive the object.
  FaultMaker(const RotationCall& call, const Explanation* reference) : call_(call), reference_(reference) {}

  // The fault of these rows. `others`: explanations that may give the same bytes.
  Fault Make(const Explanation& explanation, const std::vector<Explanation>& others, const RowSet& rows) const;
  Fault Unexplained(std::string sentence, const RowSet& rows) const;
  // Sets the positions, and what gives the same bytes as they do.
  void SetPositions(std::vector<MeasuredPositions> positions, Fault* fault) const;

 private:
  std::optional<Departure> TwinOf(const Candidate& candidate) const;
  std::optional<Departure> TwinOf(const std::vector<MeasuredPositions>& positions) const;
  RowSet Fitting(const Explanation& explanation) const;
  void SetPairs(Fault* fault, const RowSet& rows) const;

  const RotationCall& call_;
  const Explanation* const reference_;
};

}  // namespace posenc::diagnose
