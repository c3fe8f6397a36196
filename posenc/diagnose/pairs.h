// Which elements rotate together, found without knowing any angle: a rotation keeps each pair's norm up to one
// constant.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/diagnose/evidence.h"

namespace posenc::diagnose {

// Head rows as numbers: [tokens, heads, width] of before and after.
struct Numbers {
  explicit Numbers(const Rows& rows);
  const double* x(int64_t row) const { return before.data() + row * width; }
  const double* y(int64_t row) const { return after.data() + row * width; }

  int64_t tokens, heads, width;
  std::vector<double> before, after;
};

// `rotary_dim` elements from `offset` on rotate.
struct PairLayout {
  Pairing input, output;
  int64_t rotary_dim, offset;
  int64_t half_split_parts = 1;

  // The two elements of pair k, on entry or as they leave.
  int64_t First(Pairing pairing, int64_t k) const {
    return offset + (pairing == Pairing::kInterleaved ? 2 * k : k + k / half() * half());
  }
  int64_t Second(Pairing pairing, int64_t k) const {
    return First(pairing, k) + (pairing == Pairing::kInterleaved ? 1 : half());
  }
  // Pairs of a part.
  int64_t half() const { return rotary_dim / 2 / half_split_parts; }
  bool operator==(const PairLayout&) const = default;
};

struct PairHypothesis {
  PairLayout layout;
  // What the norms leave unexplained, as a part of their squares: some rounding errors squared where it is right.
  double residual;
};

struct ElementCensus {
  int64_t finite_rows = 0, rows = 0;              // rows in which every element is finite, before and after
  int64_t first_changed = -1, last_changed = -1;  // elements of a head row; -1: none changed anywhere
  bool all_zero = true;                           // before
  bool constant = true;                           // before: every element of every row the same
};
ElementCensus Census(const Numbers& numbers);

// The layouts that the norms allow, best first; `asked` before its equals. At least one, but a handful.
std::vector<PairHypothesis> FindPairs(const Numbers& numbers, const ElementCensus& census,
                                      const std::optional<PairLayout>& asked, double rounding);

// Half of the distance between 1 and its neighbour.
double RoundingOf(DType dtype);
// The coarser of before and after; of all operands.
double RoundingOf(const Rows& rows);
double RoundingOf(const Evidence& evidence);

}  // namespace posenc::diagnose
