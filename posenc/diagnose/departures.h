// Departures of a candidate from what was asked for, in words.
#pragma once

#include <string>
#include <vector>

#include "posenc/diagnose/diagnose.h"

namespace posenc::diagnose {

// Departures of pairing, width and offset. `head_dim` is the tensor's.
std::vector<Departure> LayoutDepartures(const Asked& asked, size_t operand, const PairLayout& found, int64_t head_dim);
std::vector<Departure> MatchDepartures(const Asked& asked, const Match& match, const Tokens& tokens);
std::vector<Departure> XposDepartures(const Asked& asked, const std::optional<Xpos>& found);
// Departures of the scale of q or of k. A single operand is treated as q, whichever it is.
std::vector<Departure> ScaleDepartures(Operand which, ScaledAs scaled_as);
Departure AttentionDeparture(const Asked& asked, double applied, double wanted);
Departure FaultDeparture(TableFault fault);
// Departures of precision; empty if the precision that was asked for gives the same bytes.
std::vector<Departure> PrecisionDepartures(const Asked& asked, const Explanation& explanation, DType after);

std::string Describe(const RotarySettings& settings);
std::string Describe(const Precision& precision);

}  // namespace posenc::diagnose
