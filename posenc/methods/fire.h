// FIRE (arXiv:2310.04418): a small network of the distance, normalised by the query's position.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/limits.h"
#include "posenc/spec.h"

namespace posenc {

absl::Status Complete(FireSettings& settings, const Limits& limits);

// psi of the distances and of the queries, evaluated once: what is left is the network.
class FireRows {
 public:
  // For whole distances key - query of at most `farthest` in magnitude, and queries at so many positions.
  FireRows(Frequencies arithmetic, const FireSettings& settings, int64_t farthest,
           const std::vector<double>& positions);

  // One head's row of the query that is positions[query], with keys at so many positions.
  void Fill(int64_t head, size_t query, double position, const double* keys, size_t count, float* row) const;

 private:
  const bool float32_;
  const FireSettings settings_;
  std::vector<double> psi_;          // by magnitude of the distance
  std::vector<double> normalisers_;  // by query
};

}  // namespace posenc
