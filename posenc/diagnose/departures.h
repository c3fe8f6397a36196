// How a candidate differs from what was asked for, in words.
#pragma once

#include <string>
#include <vector>

#include "posenc/diagnose/diagnose.h"

namespace posenc::diagnose {

// Of pairs and their place; `head_dim` is the tensor's.
std::vector<Departure> LayoutDepartures(const Asked& asked, size_t operand, const PairLayout& found, int64_t head_dim);
std::vector<Departure> MatchDepartures(const Asked& asked, const Match& match, const Tokens& tokens);
std::vector<Departure> XposDepartures(const Asked& asked, const std::optional<Xpos>& found);
// Of q, or of k; an operand alone is taken for q, whichever it is.
std::vector<Departure> ScaleDepartures(Operand which, ScaledAs scaled_as);
Departure AttentionDeparture(const Asked& asked, double applied, double wanted);
Departure FaultDeparture(TableFault fault);
// Where the precision that was asked for gives other bytes.
std::vector<Departure> PrecisionDepartures(const Asked& asked, const Explanation& explanation, DType after);

std::string Describe(const RotarySettings& settings);
std::string Describe(const Precision& precision);

}  // namespace posenc::diagnose
