// Forget gates (arXiv:2503.02130): the bias of a key is the sum of the log gates of the tokens after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/exact/real.h"
#include "posenc/settings/settings.h"

namespace posenc {

absl::Status Complete(const ForgetGateSettings& settings, const Limits& limits);

// Computes rows of biases. The constructor adds up the gates once, Fill() subtracts sums. All sums are exact: they are
// integers in units of the lowest bit of any gate, in the narrowest type that holds them.
class ForgetGateRows {
 public:
  explicit ForgetGateRows(const ForgetGateSettings& settings);

  // Writes the biases of one batch row and head for the query that is token `query`: those of the keys up to it, then
  // zeros. `row` has Sk values.
  void Fill(int64_t b, int64_t head, int64_t query, float* row) const;

 private:
  using Int128 = __int128;

  int64_t heads_, keys_;
  bool shared_;     // by all batch rows
  int bits_;        // of the largest sum
  int lowest_bit_;  // exponent: a sum of n stands for n * 2^lowest_bit_
  // [B, H, Sk]: the sum of the gates 1 .. j.
  std::variant<std::vector<int64_t>, std::vector<Int128>, std::vector<Real>> sums_;
};

}  // namespace posenc
