#include "posenc/diagnose/pair_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace posenc::diagnose {

void PairProducts::Add(std::complex<double> before, std::complex<double> expected, std::complex<double> given) {
  const double norm = std::norm(before);
  if (!(norm > 0) || !std::isfinite(norm) || !std::isfinite(std::norm(given))) return;
  const std::complex<double> turn = expected * std::conj(before) / norm;
  if (!std::isfinite(std::norm(turn))) return;
  const double a = before.real(), b = before.imag(), cos = turn.real(), sin = turn.imag();
  const Sums products = {a * cos, b * sin, a * sin, b * cos};
  for (int i = 0; i < kProducts; ++i) {
    for (int j = 0; j < kProducts; ++j) products_[i][j] += products[i] * products[j];
    elements_[0].with[i] += products[i] * given.real();
    elements_[1].with[i] += products[i] * given.imag();
  }
  elements_[0].squares += given.real() * given.real();
  elements_[1].squares += given.imag() * given.imag();
}

// Gaussian elimination; the factors must be -1, 0 or 1 and leave nothing over.
std::optional<PairProducts::Sums> PairProducts::Solve(const Element& element) const {
  constexpr double kOff = 0.02, kLeft = 1e-3;
  auto matrix = products_;
  Sums x = element.with;
  for (int i = 0; i < kProducts; ++i) {
    int pivot = i;
    for (int row = i + 1; row < kProducts; ++row) {
      if (std::fabs(matrix[row][i]) > std::fabs(matrix[pivot][i])) pivot = row;
    }
    std::swap(matrix[i], matrix[pivot]), std::swap(x[i], x[pivot]);
    if (!(std::fabs(matrix[i][i]) > 1e-6 * products_[i][i])) return std::nullopt;
    for (int row = 0; row < kProducts; ++row) {
      if (row == i) continue;
      const double times = matrix[row][i] / matrix[i][i];
      for (int column = i; column < kProducts; ++column) matrix[row][column] -= times * matrix[i][column];
      x[row] -= times * x[i];
    }
  }
  double left = element.squares;
  for (int i = 0; i < kProducts; ++i) {
    x[i] /= matrix[i][i];
    left -= x[i] * element.with[i];
    if (std::fabs(x[i] - std::round(x[i])) > kOff || std::fabs(x[i]) > 1 + kOff) return std::nullopt;
    x[i] = std::round(x[i]);
  }
  if (!(left <= kLeft * element.squares)) return std::nullopt;
  return x;
}

std::optional<std::string> PairProducts::Words() const {
  constexpr const char* kNames[] = {"a cos", "b sin", "a sin", "b cos"};
  constexpr Sums kExpected[] = {{1, -1, 0, 0}, {0, 0, 1, 1}};
  const auto sum = [&](const Sums& factors) {
    std::string text;
    for (int i = 0; i < kProducts; ++i) {
      if (factors[i] == 0) continue;
      text += text.empty() ? (factors[i] < 0 ? "-" : "") : (factors[i] < 0 ? " - " : " + ");
      text += kNames[i];
    }
    return text.empty() ? "0" : text;
  };
  std::string text;
  for (int n = 0; n < 2; ++n) {
    const std::optional<Sums> found = Solve(elements_[n]);
    if (!found) return std::nullopt;
    if (*found == kExpected[n]) continue;
    text += fmt::format("{}the {} elements of the pairs (a, b) are {}, not {}", text.empty() ? "" : "; ",
                        n == 0 ? "first" : "second", sum(*found), sum(kExpected[n]));
  }
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace posenc::diagnose
