// Digests of Fourier features, which cover cosines and sines of sums of products.
#include <fmt/format.h>

#include <bit>

#include "posenc/methods/embedding/encoding.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct FourierCase {
  Frequencies frequencies;
  DType dtype;
  std::string inputs;
  size_t points;
  size_t pairs;
  size_t terms;
};

double Point(const FourierCase& c, size_t point, size_t term) {
  const size_t index = point * c.terms + term;
  if (c.inputs == "eighths") return static_cast<double>(Random(1, index) % 201) - 100;
  if (c.inputs == "cancelling") return RandomReal(1, point, -4, 10);
  if (c.inputs == "far") return RandomReal(1, index, 30, 30);
  return RandomReal(1, index, -4, 10);
}

double Factor(const FourierCase& c, size_t pair, size_t term) {
  const size_t index = pair * c.terms + term;
  // Multiples of an eighth, so that angles are eighths of a turn.
  if (c.inputs == "eighths") return (static_cast<double>(Random(2, index) % 65) - 32) / 8;
  if (c.inputs != "cancelling") return RandomReal(2, index, -8, 12);
  // Signs alternate; the last term is larger by up to two units in the last place.
  uint64_t bits = std::bit_cast<uint64_t>(RandomReal(2, pair, -8, 12));
  if (term + 1 == c.terms) bits += pair % 3;
  return std::bit_cast<double>(bits ^ static_cast<uint64_t>(term % 2) << 63);
}

Block RunFourier(const FourierCase& c) {
  FourierSettings settings;
  settings.frequencies = {{}, static_cast<int64_t>(c.pairs), static_cast<int64_t>(c.terms), false};
  settings.points = {{}, static_cast<int64_t>(c.points), static_cast<int64_t>(c.terms), false};
  for (size_t n = 0; n < c.pairs * c.terms; ++n) {
    settings.frequencies.values.push_back(Factor(c, n / c.terms, n % c.terms));
  }
  for (size_t n = 0; n < c.points * c.terms; ++n) {
    settings.points.values.push_back(Point(c, n / c.terms, n % c.terms));
  }
  Block out(2 * c.points * c.pairs * SizeOf(c.dtype), 1);
  const auto encoding = Encode(std::move(settings), c.frequencies, {});
  EXPECT_TRUE(encoding.ok()) << encoding.status();
  const double first = 0;
  if (encoding.ok()) (*encoding)->Fill(&first, c.points, c.dtype, out.data());
  return out;
}

std::vector<Case> FourierCases() {
  std::vector<Case> cases;
  for (const char* inputs : {"reals", "eighths", "cancelling", "far"}) {
    for (const Frequencies frequencies : kArithmetics) {
      for (const DType dtype : kTypes) {
        for (int repeat = 0; repeat < 2; ++repeat) {
          const size_t n = cases.size();
          const FourierCase c = {.frequencies = frequencies,
                                 .dtype = dtype,
                                 .inputs = inputs,
                                 .points = Turn<size_t>(n, {1, 3, 2}),
                                 .pairs = Turn<size_t>(n, {1, 2, 5, 8, 13, 17, 33}),
                                 .terms = Turn<size_t>(n, {2, 1, 3, 4, 7})};
          cases.push_back({fmt::format("frequencies={} dtype={} inputs={} points={} pairs={} terms={}",
                                       Name(frequencies), Name(dtype), inputs, c.points, c.pairs, c.terms),
                           [c] { return RunFourier(c); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, Fourier) { Check("fourier", FourierCases()); }

}  // namespace posenc
