#include <algorithm>

#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {

std::vector<Candidate> TableCandidates(const Evidence& sample, const std::vector<Reading>& readings,
                                       const Asked& asked) {
  std::vector<Candidate> candidates;
  const std::optional<Candidate> plain = AskedCandidate(asked);
  if (!plain || !std::holds_alternative<GivenTable>(plain->settings.frequencies)) return candidates;
  const double first = *std::min_element(sample.tokens.positions[0].begin(), sample.tokens.positions[0].end());
  for (const Reading& reading : readings) {
    const bool as_wide = reading.layouts[0].rotary_dim == *plain->settings.rotary_dim;
    if (reading.norm_residual > kNotARotation || !as_wide) continue;
    Candidate candidate = *plain;
    SetLayout(reading, &candidate);
    const std::vector<Departure> of_layout = LayoutDepartures(asked, reading, sample);
    for (double direction : {1.0, -1.0}) {
      for (double shift : {0.0, 1.0, -1.0, -first, 1 - first}) {
        candidate.direction = asked.DirectionOf(direction);
        candidate.position_shift = shift;
        candidate.departures = of_layout;
        for (Departure& departure : MatchDepartures(asked, {.direction = direction, .shift = shift}, sample.tokens)) {
          candidate.departures.push_back(std::move(departure));
        }
        if (!candidate.departures.empty()) candidates.push_back(candidate);
      }
    }
  }
  return candidates;
}

}  // namespace posenc::diagnose
