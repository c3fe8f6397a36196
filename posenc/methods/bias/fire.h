// FIRE (arXiv:2310.04418): a small network of the distance, normalised by the query's position.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

absl::Status Complete(FireSettings& settings, const Limits& limits);

// Computes rows of biases. The constructor evaluates psi of all distances once, Fill() runs only the network.
class FireRows {
 public:
  // Supports integer distances key - query with magnitude at most `farthest`.
  FireRows(Frequencies arithmetic, const FireSettings& settings, int64_t farthest);

  // Returns the normalisers of queries at these positions: psi(max(threshold, position)) + epsilon.
  std::vector<double> Normalisers(const std::vector<double>& positions) const;

  // Writes one head's biases for the query at `position` and `count` keys at positions `keys`. Interruptible unless the
  // keys are few.
  void Fill(int64_t head, double normaliser, double position, const double* keys, size_t count, float* row) const;

 private:
  const Frequencies arithmetic_;
  const FireSettings settings_;
  std::vector<double> psi_;  // indexed by |distance|
};

}  // namespace posenc
