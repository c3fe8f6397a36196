#include "posenc/diagnose/pairs.h"

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kRows = 192;       // head rows on which every layout is tried
constexpr int64_t kAllWidths = 256;  // up to this width, all even widths are tried
constexpr size_t kHypotheses = 6;

bool IsFinite(const double* row, int64_t width) {
  return std::all_of(row, row + width, [](double value) { return std::isfinite(value); });
}

// Finite rows, evenly spaced over all tokens and heads.
std::vector<int64_t> SomeRows(const Numbers& numbers) {
  const int64_t all = numbers.tokens * numbers.heads, wanted = std::min(all, kRows);
  std::vector<int64_t> rows;
  for (int64_t n = 0; n < wanted; ++n) {
    const int64_t row = (2 * n + 1) * all / (2 * wanted);
    if (IsFinite(numbers.x(row), numbers.width) && IsFinite(numbers.y(row), numbers.width)) rows.push_back(row);
  }
  return rows;
}

double Residual(const Numbers& numbers, const std::vector<int64_t>& rows, const PairLayout& layout) {
  const int64_t end = layout.offset + layout.rotary_dim;
  double in = 0, both = 0, out = 0, outside = 0, total = 0;
  for (int64_t row : rows) {
    const double *x = numbers.x(row), *y = numbers.y(row);
    for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
      const double x0 = x[layout.First(layout.input, k)], x1 = x[layout.Second(layout.input, k)];
      const double y0 = y[layout.First(layout.output, k)], y1 = y[layout.Second(layout.output, k)];
      const double a = x0 * x0 + x1 * x1, b = y0 * y0 + y1 * y1;
      in += a * a;
      both += a * b;
      out += b * b;
    }
    for (int64_t e = 0; e < numbers.width; ++e) {
      if (e == layout.offset) e = end;
      if (e >= numbers.width) break;
      const double moved = (y[e] - x[e]) * (y[e] - x[e]);
      outside += moved * moved;
      total += y[e] * y[e] * y[e] * y[e];
    }
  }
  const double unexplained = in > 0 ? std::max(out - both * both / in, 0.0) : out;
  total += out;
  return total > 0 ? (unexplained + outside) / total : 1;
}

std::vector<int64_t> Widths(int64_t width, const ElementCensus& census, const std::optional<PairLayout>& asked) {
  std::vector<int64_t> widths;
  if (asked) widths.push_back(asked->rotary_dim);
  if (width <= kAllWidths) {
    for (int64_t d = width / 2 * 2; d >= 2; d -= 2) widths.push_back(d);
  } else {
    widths.push_back((census.last_changed - census.first_changed + 2) / 2 * 2);
    widths.push_back((census.last_changed + 2) / 2 * 2);
    for (int64_t part = 8; part >= 1; --part) widths.push_back(width * part / 8 / 2 * 2);
    for (int64_t d = 16; d < width; d *= 2) widths.push_back(d);
  }
  return widths;
}

}  // namespace

Numbers::Numbers(const Rows& rows)
    : tokens(rows.tokens()),
      heads(rows.heads),
      width(rows.width),
      before(tokens * heads * width),
      after(before.size()) {
  std::vector<std::byte> bytes(before.size() * sizeof(double));
  rows.Load(true, {0, tokens, 0, heads}, bytes.data());
  Convert(rows.before_dtype, DType::kFP64, bytes.data(), before.data(), before.size());
  rows.Load(false, {0, tokens, 0, heads}, bytes.data());
  Convert(rows.after_dtype, DType::kFP64, bytes.data(), after.data(), after.size());
}

PairLayout LayoutOf(const Candidate& candidate, size_t operand) {
  const RotarySettings& settings = candidate.settings;
  return {*settings.input_pairing, *settings.output_pairing, *settings.rotary_dim, candidate.offsets[operand],
          settings.half_split_parts};
}

double RoundingOf(DType dtype) {
  switch (dtype) {
    case DType::kFP64: return 0x1p-53;
    case DType::kFP32: return 0x1p-24;
    case DType::kFP16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

double RoundingOf(const Rows& rows) { return std::max(RoundingOf(rows.before_dtype), RoundingOf(rows.after_dtype)); }

double RoundingOf(const Evidence& evidence) {
  double rounding = 0;
  for (const Rows& rows : evidence.operands) rounding = std::max(rounding, RoundingOf(rows));
  return rounding;
}

ElementCensus Census(const Numbers& numbers) {
  ElementCensus census;
  census.rows = numbers.tokens * numbers.heads;
  std::optional<double> first;
  for (int64_t row = 0; row < census.rows; ++row) {
    const double *x = numbers.x(row), *y = numbers.y(row);
    if (!IsFinite(x, numbers.width) || !IsFinite(y, numbers.width)) continue;
    ++census.finite_rows;
    if (!first) first = x[0];
    for (int64_t e = 0; e < numbers.width; ++e) {
      census.all_zero = census.all_zero && x[e] == 0;
      census.constant = census.constant && x[e] == *first;
      if (x[e] == y[e]) continue;
      if (census.first_changed < 0 || e < census.first_changed) census.first_changed = e;
      census.last_changed = std::max(census.last_changed, e);
    }
  }
  return census;
}

std::vector<PairHypothesis> FindPairs(const Numbers& numbers, const ElementCensus& census,
                                      const std::optional<PairLayout>& asked, double rounding) {
  const std::vector<int64_t> rows = SomeRows(numbers);
  std::vector<PairHypothesis> found;
  const auto consider = [&](const PairLayout& layout) {
    if (layout.rotary_dim < 2 || layout.offset < 0 || layout.offset + layout.rotary_dim > numbers.width) return;
    if (layout.rotary_dim / 2 % layout.half_split_parts != 0) return;
    for (const PairHypothesis& other : found) {
      if (other.layout.HasPairsOf(layout)) return;
    }
    InterruptionPoint();
    found.push_back({layout, Residual(numbers, rows, layout)});
  };
  // Try layouts in order of preference, which decides if the norms do not.
  constexpr Pairing kHalf = Pairing::kHalfSplit, kInterleaved = Pairing::kInterleaved;
  if (asked) consider(*asked);
  const int64_t asked_parts = asked ? asked->half_split_parts : 1;
  for (int64_t d : Widths(numbers.width, census, asked)) {
    for (int64_t offset : {asked ? asked->offset : 0, int64_t{0}, numbers.width - d, census.first_changed}) {
      for (const auto& [input, output] :
           {std::pair{kHalf, kHalf}, {kInterleaved, kInterleaved}, {kInterleaved, kHalf}, {kHalf, kInterleaved}}) {
        for (int64_t parts : {asked_parts, int64_t{1}, int64_t{2}}) {
          // Interleaved pairs have no half-split parts, so one number of parts is enough.
          if (input != kInterleaved || output != kInterleaved || parts == asked_parts) {
            consider({input, output, d, offset, parts});
          }
        }
      }
    }
  }
  double best = 1;
  for (const PairHypothesis& hypothesis : found) best = std::min(best, hypothesis.residual);
  const double limit = 4 * std::max(best, 4 * rounding * rounding);
  std::erase_if(found, [limit](const PairHypothesis& hypothesis) { return !(hypothesis.residual <= limit); });
  if (found.size() > kHypotheses) found.resize(kHypotheses);
  return found;
}

}  // namespace posenc::diagnose
