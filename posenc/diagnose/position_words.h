// Words for positions that were measured, beside the stated ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/diagnose/candidate.h"

namespace posenc::diagnose {

// The stated and the applied position of a token, by axis.
struct Placed {
  int64_t batch_row, index;  // of the token; index: within the batch row
  std::vector<double> stated, applied, uncertainty;
};

// Numbers as runs of equal steps: "0-15", "5", "30, 28, ..., 0", "0-15, then 0-15".
std::string Runs(const std::vector<double>& values);

// Departures that say where the tokens were that moved, by a simple function of the stated positions if all tokens
// follow one. `as_stated`: positions of other tokens, which did not move. `axes`: names of the axes, empty if there is
// one. Empty if all are as stated, or if positions are fractions without a rule.
std::vector<Departure> PositionDepartures(const std::vector<Placed>& placed,
                                          const std::vector<std::vector<double>>& as_stated,
                                          const std::vector<std::string>& axes);

}  // namespace posenc::diagnose
