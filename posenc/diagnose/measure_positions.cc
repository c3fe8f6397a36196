#include "posenc/diagnose/measure_positions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "posenc/base/interruption.h"

namespace posenc::diagnose {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kSigmas = 5;              // an angle that is farther off does not fit
constexpr size_t kMostWindings = 1 << 12;  // more leave nothing measured

struct Interval {
  double least, most;
};

// Returns the parts of the intervals in which the pair's angle fits; nullopt if they are too many. `whole`: those
// without a whole number are left out.
std::optional<std::vector<Interval>> Unwrap(const std::vector<Interval>& intervals, const PairAngle& pair, bool whole) {
  std::vector<Interval> fitting;
  const double f = std::fabs(pair.inv_freq), angle = pair.inv_freq < 0 ? -pair.angle : pair.angle;
  const double off = kSigmas * pair.deviation;
  for (const Interval& in : intervals) {
    const double first = std::ceil((f * in.least - angle - off) / kTurn);
    const double last = std::floor((f * in.most - angle + off) / kTurn);
    if (last - first > static_cast<double>(kMostWindings)) return std::nullopt;
    for (double n = first; n <= last; ++n) {
      Interval part{std::max(in.least, (angle + kTurn * n - off) / f),
                    std::min(in.most, (angle + kTurn * n + off) / f)};
      if (whole) part = {std::ceil(part.least), std::floor(part.most)};
      if (part.least <= part.most) fitting.push_back(part);
    }
    if (fitting.size() > kMostWindings) return std::nullopt;
  }
  return fitting;
}

// The weighted mean square of the angles' errors at a position, in units of their deviations.
double Misfit(const std::vector<PairAngle>& pairs, double position) {
  double sum = 0;
  for (const PairAngle& pair : pairs) {
    const double off = std::remainder(pair.angle - pair.inv_freq * position, kTurn) / pair.deviation;
    sum += off * off;
  }
  return sum / static_cast<double>(pairs.size());
}

// The position in the interval at which the angles fit best, all of them on the windings of its middle.
double Refined(const std::vector<PairAngle>& pairs, const Interval& in) {
  const double middle = (in.least + in.most) / 2;
  double above = 0, below = 0;
  for (const PairAngle& pair : pairs) {
    const double off = std::remainder(pair.angle - pair.inv_freq * middle, kTurn);
    const double weight = 1 / (pair.deviation * pair.deviation);
    above += weight * pair.inv_freq * off;
    below += weight * pair.inv_freq * pair.inv_freq;
  }
  return middle + above / below;
}

MeasuredPosition Measure(const std::vector<PairAngle>& pairs, double farthest, bool whole) {
  constexpr int64_t kMostCompared = 1 << 12;
  std::vector<Interval> intervals = {{-farthest, farthest}};
  for (const PairAngle& pair : pairs) {
    InterruptionPoint();
    auto fitting = Unwrap(intervals, pair, whole);
    if (!fitting) return {};
    intervals = *std::move(fitting);
    if (intervals.empty()) return {};
  }
  std::vector<double> candidates;
  for (const Interval& in : intervals) {
    if (!whole) candidates.push_back(Refined(pairs, in));
    for (double p = in.least; whole && p <= in.most; ++p) {
      if (static_cast<int64_t>(candidates.size()) > kMostCompared) break;
      candidates.push_back(p);
    }
  }
  MeasuredPosition measured{.fits = true};
  double least = INFINITY;
  for (const double p : candidates) {
    const double misfit = Misfit(pairs, p);
    if (misfit < least) least = misfit, measured.position = p;
  }
  // The angles tell positions apart only if the worse one is off by more than chance: 5 deviations.
  measured.least = measured.most = measured.position;
  const double limit = least + kSigmas * kSigmas / static_cast<double>(pairs.size());
  for (const double p : candidates) {
    if (Misfit(pairs, p) > limit) continue;
    measured.least = std::min(measured.least, p);
    measured.most = std::max(measured.most, p);
  }
  if (static_cast<int64_t>(candidates.size()) > kMostCompared) {
    measured.least = intervals.front().least;
    measured.most = intervals.back().most;
  }
  return measured;
}

}  // namespace

MeasuredPosition MeasurePosition(std::vector<PairAngle> pairs, double farthest) {
  std::erase_if(pairs, [](const PairAngle& pair) { return pair.inv_freq == 0 || !(pair.deviation > 0); });
  if (pairs.empty()) return {};
  std::sort(pairs.begin(), pairs.end(),
            [](const PairAngle& a, const PairAngle& b) { return std::fabs(a.inv_freq) < std::fabs(b.inv_freq); });
  const MeasuredPosition whole = Measure(pairs, farthest, true);
  return whole.fits ? whole : Measure(pairs, farthest, false);
}

}  // namespace posenc::diagnose
