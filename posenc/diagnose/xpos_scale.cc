#include "posenc/diagnose/pairs.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "posenc/methods/rope/xpos.h"

namespace posenc::diagnose {
namespace {

std::vector<double> LogZeta(int64_t rotary_dim) {
  return MakeXposPlan(Frequencies::kExact, {.scale_base = 1, .centre = 0}, rotary_dim).log_zeta;
}

// Returns the first known number within the uncertainty of `value` (5 times), else `value`.
double FirstNear(double value, double uncertainty, std::initializer_list<std::optional<double>> known) {
  for (const std::optional<double>& number : known) {
    if (number && std::fabs(value - *number) <= 5 * uncertainty + 1e-9 * std::fabs(value)) return *number;
  }
  return value;
}

// Growth of pair k's norm at a token: half of the logarithm of the squared norms' ratio; NaN without a norm.
double Growth(const Numbers& numbers, const PairLayout& layout, int64_t token, int64_t k) {
  double in = 0, out = 0;
  for (int64_t row = token * numbers.heads; row < (token + 1) * numbers.heads; ++row) {
    const double *x = numbers.x(row), *y = numbers.y(row);
    const double x0 = x[layout.First(layout.input, k)], x1 = x[layout.Second(layout.input, k)];
    const double y0 = y[layout.First(layout.output, k)], y1 = y[layout.Second(layout.output, k)];
    in += x0 * x0 + x1 * x1;
    out += y0 * y0 + y1 * y1;
  }
  const double growth = std::log(out / in) / 2;
  return std::isfinite(growth) ? growth : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::optional<XposScale> MeasureXpos(const Numbers& numbers, const PairLayout& layout,
                                     const std::vector<double>& positions, const std::optional<Xpos>& usual) {
  const std::vector<double> log_zeta = LogZeta(layout.rotary_dim);
  // Growth is log_zeta (p - centre) / scale_base: fit a line over positions by least squares around their mean.
  std::vector<std::pair<double, double>> values;  // position, growth
  std::vector<double> weights;                    // log_zeta squared
  double zz = 0, mean = 0;
  for (int64_t token = 0; token < numbers.tokens; ++token) {
    for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
      const double growth = Growth(numbers, layout, token, k) / log_zeta[k], zeta = log_zeta[k] * log_zeta[k];
      if (!std::isfinite(growth)) continue;
      values.emplace_back(positions[token], growth);
      weights.push_back(zeta);
      zz += zeta;
      mean += zeta * positions[token];
    }
  }
  mean /= zz;
  double spread = 0, slope = 0, level = 0;
  for (size_t n = 0; n < values.size(); ++n) {
    const double p = values[n].first - mean;
    spread += weights[n] * p * p;
    slope += weights[n] * p * values[n].second;
    level += weights[n] * values[n].second;
  }
  if (!(spread > 0)) return std::nullopt;  // only one position
  slope /= spread;
  level /= zz;
  double left = 0;
  for (size_t n = 0; n < values.size(); ++n) {
    const double off = values[n].second - level - slope * (values[n].first - mean);
    left += weights[n] * off * off;
  }
  const double variance = left / static_cast<double>(values.size()), measured = 1 / std::fabs(slope);
  if (!(measured < 1e9)) return std::nullopt;  // the norms do not change
  const double of_base = measured * measured * std::sqrt(variance / spread);
  std::optional<double> asked_base, asked_centre;
  if (usual) asked_base = usual->scale_base, asked_centre = usual->centre;
  const double base = FirstNear(measured, of_base, {asked_base, 512.0, std::round(measured)});
  // A known base keeps the slope's uncertainty out of the centre, however far it is from the mean.
  const double sign = slope > 0 ? 1 : -1, centre = mean - sign * base * level;
  double of_centre = base * std::sqrt(variance / zz);
  if (base == measured) of_centre += std::fabs(mean - centre) * of_base / base;
  // The centre is in stated positions, which may be off by one.
  std::optional<double> later, earlier;
  if (asked_centre) later = *asked_centre + 1, earlier = *asked_centre - 1;
  return XposScale{{base, FirstNear(centre, of_centre, {asked_centre, later, earlier, std::round(2 * centre) / 2})},
                   slope < 0};
}

void RemoveXpos(const XposScale& scale, const PairLayout& layout, const std::vector<double>& positions,
                Numbers* numbers) {
  const std::vector<double> log_zeta = LogZeta(layout.rotary_dim);
  for (int64_t row = 0; row < numbers->tokens * numbers->heads; ++row) {
    double power = (positions[row / numbers->heads] - *scale.xpos.centre) / *scale.xpos.scale_base;
    if (scale.divides) power = -power;
    double* y = numbers->after.data() + row * numbers->width;
    for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
      const double by = std::exp(-power * log_zeta[k]);
      y[layout.First(layout.output, k)] *= by;
      y[layout.Second(layout.output, k)] *= by;
    }
  }
}

}  // namespace posenc::diagnose
