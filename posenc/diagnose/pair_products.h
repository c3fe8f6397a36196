// The products of which rotated elements are the sums.
#pragma once

#include <array>
#include <complex>
#include <optional>
#include <string>

namespace posenc::diagnose {

// A pair (a, b) that turns by an angle becomes (a cos - b sin, a sin + b cos). Finds which of a cos, b sin, a sin and
// b cos the two elements consist of instead, with factors 1 or -1, by least squares over many pairs.
class PairProducts {
 public:
  // The pair before, as expected and as given.
  void Add(std::complex<double> before, std::complex<double> expected, std::complex<double> given);
  // Returns a sentence that says the sums. Absent if they do not explain all pairs, or are as expected.
  std::optional<std::string> Words() const;

 private:
  static constexpr int kProducts = 4;
  using Sums = std::array<double, kProducts>;
  struct Element {
    Sums with{};  // sums of the element times each product
    double squares = 0;
  };

  std::optional<Sums> Solve(const Element& element) const;

  std::array<Sums, kProducts> products_{};
  std::array<Element, 2> elements_;
};

}  // namespace posenc::diagnose
