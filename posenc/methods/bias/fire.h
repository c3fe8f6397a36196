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

// psi of the distances, evaluated once: with psi of the queries, what is left is the network.
class FireRows {
 public:
  // For whole distances key - query of at most `farthest` in magnitude.
  FireRows(Frequencies arithmetic, const FireSettings& settings, int64_t farthest);

  // psi of queries at these positions.
  std::vector<double> Normalisers(const std::vector<double>& positions) const;

  // One head's row of a query, with keys at so many positions.
  void Fill(int64_t head, double normaliser, double position, const double* keys, size_t count, float* row) const;

 private:
  const Frequencies arithmetic_;
  const FireSettings settings_;
  std::vector<double> psi_;  // by magnitude of the distance
};

}  // namespace posenc
