// Reference: relative terms in plain double arithmetic, from their papers, one cell at a time. Vectors are rows of d
// channels; r = i - j is query - key unless said otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace posenc::reference {

using Row = std::vector<double>;

inline double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}
inline Row Plus(const Row& a, const Row& b) {
  Row sum = a;
  for (size_t c = 0; c < a.size(); ++c) sum[c] += b[c];
  return sum;
}
// y = W x + bias, W [outputs][inputs].
inline Row Linear(const std::vector<Row>& w, const Row& x, const Row& bias) {
  Row y;
  for (size_t o = 0; o < w.size(); ++o) y.push_back(Dot(w[o], x) + (bias.empty() ? 0 : bias[o]));
  return y;
}
inline Row HeadOf(const Row& row, int64_t head, int64_t d) {
  return {row.begin() + head * d, row.begin() + (head + 1) * d};
}
inline Row LayerNorm(const Row& x, const Row& weight, const Row& bias, double epsilon) {
  double mean = 0, variance = 0;
  for (double value : x) mean += value / static_cast<double>(x.size());
  for (double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
  Row y;
  for (size_t c = 0; c < x.size(); ++c)
    y.push_back((x[c] - mean) / std::sqrt(variance + epsilon) * weight[c] + bias[c]);
  return y;
}

// Shaw et al. (arXiv:1803.02155), equation 4: a_ij = w_clip(j-i, k), w_-k first.
inline const Row& ShawRow(const std::vector<Row>& w, int64_t key_minus_query) {
  const int64_t k = static_cast<int64_t>(w.size()) / 2;
  return w[std::min(std::max(key_minus_query, -k), k) + k];
}

// Transformer-XL (arXiv:1901.02860), section 3.3: R_n, the sines before the cosines. With tensor2tensor the
// last frequency is 1/10000.
inline Row TransformerXlEncoding(double n, int64_t d_model, bool tensor2tensor = false) {
  Row r;
  const double spread = tensor2tensor ? static_cast<double>(d_model) - 2 : static_cast<double>(d_model);
  for (auto* function : {+[](double x) { return std::sin(x); }, +[](double x) { return std::cos(x); }}) {
    for (int64_t k = 0; k < d_model / 2; ++k) {
      r.push_back(function(n / std::pow(10000.0, 2.0 * static_cast<double>(k) / spread)));
    }
  }
  return r;
}

// DeBERTa v1 (arXiv:2006.03654), equation 3, delta(i, j), for k = span.
inline int64_t DebertaRow(int64_t r, int64_t span) {
  if (r <= -span) return 0;
  if (r >= span) return 2 * span - 1;
  return r + span;
}
// DeBERTa v2 ("log bucket" in the authors' code): distances beyond half of the buckets share them.
inline int64_t DebertaBucket(int64_t r, int64_t buckets, int64_t max_position) {
  const int64_t middle = buckets / 2, n = std::abs(r);
  if (n <= middle) return r;
  const double x = std::log(static_cast<double>(n) / static_cast<double>(middle)) /
                   std::log(static_cast<double>(max_position - 1) / static_cast<double>(middle)) *
                   static_cast<double>(middle - 1);
  // If the formula gives a whole number, the logarithms may miss it by an ulp.
  const double nearest = std::round(x);
  const auto bucket = static_cast<int64_t>(std::abs(x - nearest) < 1e-9 ? nearest : std::ceil(x)) + middle;
  return r < 0 ? -bucket : bucket;
}

// WPR (arXiv:2502.02004), equations 3 and 4: psi((t - b) / a).
inline double Ricker(double u) { return (1 - u * u) * std::exp(-u * u / 2); }
inline double GaussianWavelet(double u) { return std::exp(-u * u); }
inline double Morlet(double u, double c) { return std::exp(-u * u) * std::cos(c * u); }
inline double Haar(double u) { return u < 0 || u >= 1 ? 0 : u < 0.5 ? 1 : -1; }

// CoPE (arXiv:2405.18719), equations 4 to 6: one query's terms. logits: scaled products with the keys, -infinity for
// hidden keys; products: q . e[p] for each whole p.
inline Row Cope(const Row& logits, const Row& products) {
  Row terms(logits.size());
  const auto most = static_cast<double>(products.size() - 1);
  for (size_t j = 0; j < logits.size(); ++j) {
    double p = 0;
    for (size_t t = j; t < logits.size(); ++t) p += 1 / (1 + std::exp(-logits[t]));
    p = std::min(p, most);
    const double below = std::floor(p);
    terms[j] = (1 - (p - below)) * products[static_cast<size_t>(below)] +
               (p - below) * products[static_cast<size_t>(std::ceil(p))];
  }
  return terms;
}

}  // namespace posenc::reference
