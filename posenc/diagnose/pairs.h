// Detection of the elements that rotate together, without any angle: a rotation keeps each pair's norm up to one
// constant factor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/diagnose/evidence.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// Head rows as float64: [tokens, heads, width] before and after.
struct Numbers {
  explicit Numbers(const Rows& rows);
  const double* x(int64_t row) const { return before.data() + row * width; }
  const double* y(int64_t row) const { return after.data() + row * width; }

  int64_t tokens, heads, width;
  std::vector<double> before, after;
};

// A layout of pairs: `rotary_dim` elements from `offset` on rotate.
struct PairLayout {
  Pairing input, output;
  int64_t rotary_dim, offset;
  int64_t half_split_parts = 1;

  // Indices of the two elements of pair k, with the pairing of the input or of the output.
  int64_t First(Pairing pairing, int64_t k) const {
    return offset + (pairing == Pairing::kInterleaved ? 2 * k : k + k / half() * half());
  }
  int64_t Second(Pairing pairing, int64_t k) const {
    return First(pairing, k) + (pairing == Pairing::kInterleaved ? 1 : half());
  }
  // Number of pairs in a half-split part.
  int64_t half() const { return rotary_dim / 2 / half_split_parts; }
  // True if the pairs are the same elements: with one pair in a part, half-split ones are interleaved.
  bool HasPairsOf(const PairLayout& other) const {
    return rotary_dim == other.rotary_dim && offset == other.offset && Distance(input) == other.Distance(other.input) &&
           Distance(output) == other.Distance(other.output);
  }
  bool operator==(const PairLayout&) const = default;

 private:
  // Between the elements of a pair.
  int64_t Distance(Pairing pairing) const { return Second(pairing, 0) - First(pairing, 0); }
};

struct Candidate;
// The pairs that a candidate rotates in an operand.
PairLayout LayoutOf(const Candidate& candidate, size_t operand);

struct PairHypothesis {
  PairLayout layout;
  // Residual of the squared norms, relative to them. A few squared rounding errors if the layout is right.
  double residual;
};

struct ElementCensus {
  int64_t finite_rows = 0, rows = 0;              // finite: all elements, before and after
  int64_t first_changed = -1, last_changed = -1;  // index in a head row; -1: none changed
  bool all_zero = true;                           // all elements of `before` are 0
  bool constant = true;                           // all elements of `before` are equal
};
ElementCensus Census(const Numbers& numbers);

// Returns the layouts that the norms allow, at most 6, in order of preference: `asked` first. At least one if norms are
// finite.
std::vector<PairHypothesis> FindPairs(const Numbers& numbers, const ElementCensus& census,
                                      const std::optional<PairLayout>& asked, double rounding);

// Unit roundoff: half of the gap between 1 and the next larger value.
double RoundingOf(DType dtype);
// The largest unit roundoff of before and after; for Evidence, over all operands.
double RoundingOf(const Rows& rows);
double RoundingOf(const Evidence& evidence);

// Measurement of xPos's scale, which multiplies the norms of pair i by zeta_i^((p - centre) / scale_base), those of k
// by the reciprocal (posenc/methods/rope/xpos.h). Without it, a rotation remains.

struct XposScale {
  Xpos xpos;  // relative to the stated positions
  bool divides = false;
};

// Fits a scale to the norms of the layout's pairs, which need not have one; absent if they do not change. Within the
// uncertainty, base and centre snap to `usual` (its centre also +-1), 512, integers and, for a centre, halves.
std::optional<XposScale> MeasureXpos(const Numbers& numbers, const PairLayout& layout,
                                     const std::vector<double>& positions, const std::optional<Xpos>& usual);

// Removes the scale from `after`.
void RemoveXpos(const XposScale& scale, const PairLayout& layout, const std::vector<double>& positions,
                Numbers* numbers);

}  // namespace posenc::diagnose
