#include "posenc/diagnose/xpos_scale.h"

#include <cmath>

#include "posenc/methods/xpos.h"

namespace posenc::diagnose {
namespace {

std::vector<double> LogZeta(int64_t rotary_dim) {
  return MakeXposPlan(Frequencies::kExact, {.scale_base = 1, .centre = 0}, rotary_dim).log_zeta;
}

double Near(double value, std::optional<double> known, double tolerance) {
  return known && std::fabs(value - *known) <= tolerance ? *known : value;
}

}  // namespace

std::optional<XposScale> MeasureXpos(const Numbers& numbers, const PairLayout& layout,
                                     const std::vector<double>& positions, const std::optional<Xpos>& usual) {
  const std::vector<double> log_zeta = LogZeta(layout.rotary_dim);
  // Half of the logarithm of the norms' ratio is log_zeta (p - centre) / scale_base: two unknowns, by least squares.
  double zz = 0, zzp = 0, zzpp = 0, zg = 0, zpg = 0;
  for (int64_t token = 0; token < numbers.tokens; ++token) {
    for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
      double in = 0, out = 0;
      for (int64_t head = 0; head < numbers.heads; ++head) {
        const int64_t row = token * numbers.heads + head;
        const double *x = numbers.x(row), *y = numbers.y(row);
        const double x0 = x[layout.First(layout.input, k)], x1 = x[layout.Second(layout.input, k)];
        const double y0 = y[layout.First(layout.output, k)], y1 = y[layout.Second(layout.output, k)];
        in += x0 * x0 + x1 * x1;
        out += y0 * y0 + y1 * y1;
      }
      const double z = log_zeta[k], p = positions[token], growth = std::log(out / in) / 2;
      if (!std::isfinite(growth)) continue;
      zz += z * z;
      zzp += z * z * p;
      zzpp += z * z * p * p;
      zg += z * growth;
      zpg += z * p * growth;
    }
  }
  const double determinant = zz * zzpp - zzp * zzp;
  if (!(determinant > 1e-9 * zz * zzpp)) return std::nullopt;  // one position
  const double slope = (zz * zpg - zzp * zg) / determinant;
  double base = 1 / std::fabs(slope);
  if (!(base < 1e9)) return std::nullopt;  // the norms stay
  base = Near(base, std::round(base), 1e-3 * base);
  base = Near(base, 512, 0.02 * base);
  if (usual) base = Near(base, usual->scale_base, 0.02 * base);
  // With the base known, the centre does not suffer from the slope's uncertainty far from it.
  const double sign = slope > 0 ? 1 : -1;
  double centre = zzp / zz - sign * base * zg / zz;
  centre = Near(centre, std::round(2 * centre) / 2, 0.2);
  return XposScale{{base, centre}, slope < 0};
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
