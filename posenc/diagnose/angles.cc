#include "posenc/diagnose/angles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace posenc::diagnose {
namespace {

using Complex = std::complex<double>;

Complex Turn(double angle) { return {std::cos(angle), std::sin(angle)}; }

// For each pair, the sum over tokens of its turns after removal of the frequency's angle. The terms add up if the
// frequency explains them.
std::vector<Complex> Unexplained(const Angles& angles, const Tokens& tokens, const Frequency& frequency,
                                 double direction) {
  std::vector<Complex> sums(angles.pairs);
  for (int64_t n = 0; n < angles.tokens; ++n) {
    for (int64_t k = 0; k < angles.pairs; ++k) {
      const int64_t at = n * angles.pairs + k;
      const double magnitude = std::abs(angles.turn[at]);
      if (angles.weight[at] == 0 || magnitude == 0) continue;
      const double position = tokens.positions[frequency.axis.empty() ? 0 : frequency.axis[k]][n];
      sums[k] += angles.weight[at] / magnitude * angles.turn[at] * Turn(-direction * frequency.inv_freq[k] * position);
    }
  }
  return sums;
}

double TotalWeight(const Angles& angles) {
  double total = 0;
  for (double weight : angles.weight) total += weight;
  return total;
}

double SumAt(const std::vector<Complex>& sums, const Frequency& frequency, double direction, double shift) {
  double sum = 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    sum += (sums[k] * Turn(-direction * frequency.inv_freq[k] * shift)).real();
  }
  return sum;
}

}  // namespace

void Angles::Add(const Numbers& numbers, const PairLayout& layout) {
  if (turn.empty()) {
    tokens = numbers.tokens;
    pairs = layout.rotary_dim / 2;
    turn.resize(tokens * pairs);
    weight.resize(turn.size());
  }
  double energy = 0, explained = 0;
  for (int64_t n = 0; n < tokens; ++n) {
    for (int64_t k = 0; k < pairs; ++k) {
      Complex product = 0;
      double in = 0, out = 0;
      for (int64_t h = 0; h < numbers.heads; ++h) {
        const double *x = numbers.x(n * numbers.heads + h), *y = numbers.y(n * numbers.heads + h);
        const Complex before(x[layout.First(layout.input, k)], x[layout.Second(layout.input, k)]);
        const Complex after(y[layout.First(layout.output, k)], y[layout.Second(layout.output, k)]);
        const double e = std::norm(before);
        if (!std::isfinite(e) || !std::isfinite(std::norm(after))) continue;
        product += after * std::conj(before);
        in += e;
        out += std::norm(after);
      }
      turn[n * pairs + k] += product;
      weight[n * pairs + k] += in;
      energy += out;
      if (in > 0) explained += std::norm(product) / in;
    }
  }
  if (energy > 0) scatter = std::max(scatter, 1 - explained / energy);
}

void Angles::Finish() {
  std::vector<double> magnitudes;
  for (size_t at = 0; at < turn.size(); ++at) {
    if (weight[at] == 0) continue;
    turn[at] /= weight[at];
    magnitudes.push_back(std::abs(turn[at]));
  }
  if (magnitudes.empty()) return;
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  attention_scaling = *middle;
}

std::vector<int64_t> Angles::HeaviestPairs(int64_t most) const {
  std::vector<double> total(pairs);
  for (size_t at = 0; at < weight.size(); ++at) total[at % pairs] += weight[at];
  std::vector<int64_t> heaviest(pairs);
  std::iota(heaviest.begin(), heaviest.end(), 0);
  std::stable_sort(heaviest.begin(), heaviest.end(), [&](int64_t a, int64_t b) { return total[a] > total[b]; });
  heaviest.resize(std::min(most, pairs));
  std::sort(heaviest.begin(), heaviest.end());
  return heaviest;
}

Match FindMatch(const Angles& angles, const Tokens& tokens, const Frequency& frequency,
                const std::vector<double>& others) {
  const double total = TotalWeight(angles);
  Match best;
  if (total == 0) return best;
  std::vector<double> shifts = {0, 1, -1};
  shifts.insert(shifts.end(), others.begin(), others.end());
  for (double direction : {1.0, -1.0}) {
    const std::vector<Complex> sums = Unexplained(angles, tokens, frequency, direction);
    for (double shift : shifts) {
      const double residual = 1 - SumAt(sums, frequency, direction, shift) / total;
      if (residual < best.residual * (1 - 1e-9) - 1e-13) best = {direction, shift, residual};
    }
  }
  best.residual = std::max(best.residual, 0.0);
  return best;
}

}  // namespace posenc::diagnose
