#include "posenc/base/interruption.h"
#include "posenc/diagnose/angles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace posenc::diagnose {
namespace {

using Complex = std::complex<double>;

struct Point {
  double position;
  Complex turn;  // unit length
  double weight;
};

// The turns of one pair along one axis, merged to one point per position.
std::vector<Point> PointsOf(const Angles& angles, const std::vector<double>& positions, int64_t pair,
                            const std::vector<int64_t>& order) {
  std::vector<Point> points;
  for (int64_t n : order) {
    const int64_t at = n * angles.pairs + pair;
    if (angles.weight[at] == 0) continue;
    if (points.empty() || points.back().position != positions[n]) points.push_back({positions[n], 0, 0});
    points.back().turn += angles.weight[at] * angles.turn[at];
    points.back().weight += angles.weight[at];
  }
  std::erase_if(points, [](const Point& point) { return std::abs(point.turn) == 0; });
  for (Point& point : points) point.turn /= std::abs(point.turn);
  return points;
}

double SmallestStep(const std::vector<Point>& points) {
  double step = 0;
  for (size_t n = 1; n < points.size(); ++n) {
    const double gap = points[n].position - points[n - 1].position;
    if (step == 0 || gap < step) step = gap;
  }
  return step;
}

// Estimates the frequency from phase differences over doubling distances. Each distance makes it precise enough that
// the next, longer one is not wrong by a whole turn.
double Unwrap(const std::vector<Point>& points) {
  const double range = points.back().position - points.front().position;
  double f = 0;
  for (double baseline = SmallestStep(points); baseline <= range * (1 + 1e-12); baseline *= 2) {
    Complex sum = 0;
    double weight = 0, distance = 0;
    for (size_t j = 0, k = 0; j < points.size(); ++j) {
      while (k < points.size() && points[k].position - points[j].position < baseline * (1 - 1e-12)) ++k;
      if (k == points.size()) break;
      const double gap = points[k].position - points[j].position;
      if (gap >= 2 * baseline) continue;
      const double w = std::min(points[j].weight, points[k].weight);
      sum += w * points[k].turn * std::conj(points[j].turn) * std::polar(1.0, -f * gap);
      weight += w;
      distance += w * gap;
    }
    if (weight == 0) continue;
    if (std::abs(sum) < 0.5 * weight) break;  // noise: longer distances are unreliable
    f += std::arg(sum) * weight / distance;
  }
  return f;
}

// Fits a line through the phases, whose whole turns are known now.
MeasuredFrequency FitLine(const std::vector<Point>& points, double f) {
  MeasuredFrequency result;
  double sum = 0, sum_p = 0;
  for (const Point& point : points) sum += point.weight, sum_p += point.weight * point.position;
  const double centre = sum_p / sum;
  double phase = 0, spread = 0, squares = 0;
  for (int round = 0; round < 3; ++round) {
    Complex mean = 0;
    for (const Point& point : points) {
      mean += point.weight * point.turn * std::polar(1.0, -f * (point.position - centre));
    }
    phase = std::arg(mean);
    double slope = 0;
    spread = squares = 0;
    for (const Point& point : points) {
      const double p = point.position - centre;
      const double error = std::arg(point.turn * std::polar(1.0, -f * p - phase));
      slope += point.weight * error * p;
      spread += point.weight * p * p;
      squares += point.weight * error * error;
    }
    if (spread > 0) f += slope / spread;
  }
  result.inv_freq = f;
  result.phase = std::remainder(phase - f * centre, 2 * std::numbers::pi);
  const double freedom = std::max<double>(1, static_cast<double>(points.size()) - 2);
  const double noise = std::sqrt(squares / sum * static_cast<double>(points.size()) / freedom);
  // A few points may be near a line by chance, as two always are. Float32 elements and phases have this noise at least.
  const double farthest = std::max(std::fabs(points.front().position), std::fabs(points.back().position));
  const double floor = 0x1p-24 * (1 + std::fabs(f) * farthest) / freedom;
  result.uncertainty = std::sqrt(sum / static_cast<double>(points.size()) / spread) * std::max(noise, floor);
  return result;
}

double Residual(const std::vector<Point>& points, const MeasuredFrequency& line) {
  double weight = 0, along = 0;
  for (const Point& point : points) {
    weight += point.weight;
    along += point.weight * (point.turn * std::polar(1.0, -line.inv_freq * point.position - line.phase)).real();
  }
  return 1 - along / weight;
}

}  // namespace

MeasuredFrequencies MeasureFrequencies(const Angles& angles, const Tokens& tokens) {
  MeasuredFrequencies measured;
  measured.pairs.resize(angles.pairs);
  std::vector<double> residual(angles.pairs, std::numeric_limits<double>::infinity());
  for (int64_t axis = 0; axis < tokens.axes(); ++axis) {
    const std::vector<double>& positions = tokens.positions[axis];
    std::vector<int64_t> order(angles.tokens);
    for (int64_t n = 0; n < angles.tokens; ++n) order[n] = n;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return positions[a] < positions[b]; });
    for (int64_t k = 0; k < angles.pairs; ++k) {
      InterruptionPoint();
      const std::vector<Point> points = PointsOf(angles, positions, k, order);
      if (points.size() < 2) {
        if (axis == 0) measured.pairs[k].uncertainty = std::numeric_limits<double>::infinity();
        continue;
      }
      if (axis == 0) measured.smallest_step = SmallestStep(points);
      MeasuredFrequency line = FitLine(points, Unwrap(points));
      line.axis = axis;
      const double left = Residual(points, line);
      if (left >= residual[k] * 0.5) continue;  // a later axis must halve the residual
      residual[k] = left;
      measured.pairs[k] = line;
    }
  }
  return measured;
}

std::optional<PowerLaw> FindPowerLaw(const MeasuredFrequencies& measured) {
  double sum = 0, sum_k = 0, sum_kk = 0, sum_y = 0, sum_ky = 0;
  int64_t used = 0;
  for (size_t k = 0; k < measured.pairs.size(); ++k) {
    const double f = std::fabs(measured.pairs[k].inv_freq), sigma = measured.pairs[k].uncertainty;
    if (!(f > 0) || !(sigma < 0.05 * f)) continue;
    const double relative = std::max(sigma / f, 1e-12), w = 1 / (relative * relative), i = static_cast<double>(k);
    sum += w, sum_k += w * i, sum_kk += w * i * i, sum_y += w * std::log(f), sum_ky += w * i * std::log(f);
    ++used;
  }
  const double determinant = sum * sum_kk - sum_k * sum_k;
  if (used < 3 || !(determinant > 0)) return std::nullopt;
  const double slope = (sum * sum_ky - sum_k * sum_y) / determinant, start = (sum_y - slope * sum_k) / sum;
  for (size_t k = 0; k < measured.pairs.size(); ++k) {
    const double f = std::fabs(measured.pairs[k].inv_freq), sigma = measured.pairs[k].uncertainty;
    if (!(f > 0) || !(sigma < 0.05 * f)) continue;
    if (std::fabs(std::log(f) - start - slope * static_cast<double>(k)) > 8 * sigma / f + 1e-4) return std::nullopt;
  }
  const double d = 2 * static_cast<double>(measured.pairs.size());
  return PowerLaw{std::exp(-slope * d / 2), std::exp(-start), d / 2 * std::sqrt(sum / determinant),
                  std::sqrt(sum_kk / determinant)};
}

}  // namespace posenc::diagnose
