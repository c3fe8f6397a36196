#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {
namespace {

using Complex = std::complex<double>;

struct Traced {
  double stated, applied;
};

// Finds the whole position at which each token's angles fit the frequencies best, among those that the stated ones
// suggest. Tokens that fit nowhere make the result empty.
std::vector<Traced> TracePositions(const Angles& angles, const std::vector<double>& inv_freq, double direction,
                                   const std::vector<double>& positions) {
  constexpr double kFarthest = 1 << 16;
  constexpr int64_t kMostSteps = int64_t{1} << 25, kLeastTokens = 8, kMostTokens = 128;
  const double last = *std::max_element(positions.begin(), positions.end());
  if (!(last >= 0 && last <= kFarthest)) return {};
  const auto range = static_cast<int64_t>(last) + 1;
  const std::vector<int64_t> pairs = angles.HeaviestPairs(kSearchedPairs);
  const int64_t wanted =
      std::clamp(kMostSteps / (range * static_cast<int64_t>(pairs.size())), kLeastTokens, kMostTokens);
  const int64_t tokens = std::min(angles.tokens, wanted);
  std::vector<Traced> traced;
  for (int64_t m = 0; m < tokens; ++m) {
    const int64_t n = angles.tokens * m / tokens;
    std::vector<Complex> turning, step;
    double total = 0;
    for (const int64_t k : pairs) {
      const Complex turn = angles.turn[n * angles.pairs + k];
      const double weight = angles.weight[n * angles.pairs + k];
      if (weight == 0 || std::abs(turn) == 0) continue;
      turning.push_back(weight / std::abs(turn) * turn);
      step.push_back(std::polar(1.0, -direction * inv_freq[k]));
      total += weight;
    }
    double best = 0, largest = -1;
    for (int64_t p = 0; p < range; ++p) {
      if (p % 64 == 0) InterruptionPoint();
      double sum = 0;
      for (size_t k = 0; k < turning.size(); ++k) {
        sum += turning[k].real();
        turning[k] = {turning[k].real() * step[k].real() - turning[k].imag() * step[k].imag(),
                      turning[k].real() * step[k].imag() + turning[k].imag() * step[k].real()};
      }
      if (sum > largest) largest = sum, best = static_cast<double>(p);
    }
    if (!(1 - largest / total <= kWellMatched)) return {};
    traced.push_back({positions[n], best});
  }
  return traced;
}

struct Named {
  PositionMap map;
  std::string message;
};

// Simple functions that give the traced positions, most likely first.
std::vector<Named> MapsOf(const std::vector<Traced>& traced) {
  using Kind = PositionMap::Kind;
  double largest = 0;
  int64_t common = 0;  // divisor of all differences
  bool whole = true;
  for (const auto& [stated, applied] : traced) {
    largest = std::max(largest, applied);
    whole &= stated == std::floor(stated);
    common = std::gcd(common, static_cast<int64_t>(stated - applied));
  }
  std::vector<Named> tried = {
      {{Kind::kConstant, traced[0].applied}, fmt::format("all tokens are at position {}", Short(traced[0].applied))},
      {{Kind::kReversed, traced[0].stated + traced[0].applied},
       fmt::format("positions run backwards: {} minus the stated position",
                   Short(traced[0].stated + traced[0].applied))},
      {{Kind::kClamped, largest}, fmt::format("positions end at {}: larger ones were clamped", Short(largest))}};
  const auto add = [&](Kind kind, double value, const char* words) {
    tried.push_back({{kind, value}, fmt::format(fmt::runtime(words), Short(value))});
  };
  if (whole && common > 1) {
    std::vector<int64_t> divisors;
    for (int64_t power = 2; power <= common; power *= 2) {
      if (common % power == 0 && static_cast<double>(power) > largest) divisors.push_back(power);
    }
    divisors.push_back(common);
    for (const int64_t m : divisors) add(Kind::kModulo, static_cast<double>(m), "positions are modulo {}");
  }
  for (const double m : {2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0}) {
    add(Kind::kRoundDown, m, "positions were rounded down to multiples of {}");
    add(Kind::kQuotient, m, "positions were divided by {} and rounded down");
  }
  std::erase_if(tried, [&traced](const Named& named) {
    return !std::all_of(traced.begin(), traced.end(),
                        [&](const Traced& one) { return named.map(one.stated) == one.applied; });
  });
  return tried;
}

}  // namespace

std::vector<Candidate> MappedCandidates(const Evidence& sample, const std::vector<Reading>& readings,
                                        const Asked& asked, const Limits& limits) {
  std::vector<Candidate> candidates;
  const std::optional<Candidate> plain = AskedCandidate(asked);
  if (!plain || sample.tokens.axes() > 1 || readings.empty()) return candidates;
  const Reading& reading = readings[0];
  const auto rotary = Rotary::Create(plain->settings, Frequencies::kFloat64, limits);
  if (!rotary.ok() || rotary->table() != nullptr || plain->settings.xpos || rotary->axes() > 1) return candidates;
  if (rotary->NeedsSeqLen() && sample.tokens.seq_len.size() != 1) return candidates;
  const auto plan = rotary->Plan(rotary->NeedsSeqLen() ? sample.tokens.seq_len[0] : 0);
  if (!plan.ok() || static_cast<int64_t>((*plan)->inv_freq.size()) != reading.angles.pairs) return candidates;
  std::vector<double> inv_freq = (*plan)->inv_freq;
  for (double& f : inv_freq) f /= (*plan)->position_divisor;
  const double direction = asked.direction == Direction::kForward ? 1 : -1;
  const std::vector<Traced> traced = TracePositions(reading.angles, inv_freq, direction, sample.tokens.positions[0]);
  if (traced.size() < 2) return candidates;
  for (Named& named : MapsOf(traced)) {
    Candidate candidate = *plain;
    SetLayout(reading, &candidate);
    candidate.departures = LayoutDepartures(asked, reading, sample);
    candidate.departures.push_back({"POSITIONS", std::move(named.message)});
    candidate.position_map = named.map;
    candidate.free_values = 1;
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

}  // namespace posenc::diagnose
