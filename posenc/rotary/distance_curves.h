// Curves of attention over distance for given frequencies, as papers plot them. With z_i = exp(sqrt(-1) m f_i) for the
// pairs i = 0 .. P-1 at distance m (with xPos times its scale):
//
//   cosine sum    the real part of z_0 + ... + z_{P-1}: the dot product of two sinusoidal encodings, or of a query
//                 and a key whose pairs are all equal
//   decay bound   the mean over j = 1 .. P of |z_0 + ... + z_{j-1}| from RoFormer (arXiv:2104.09864, section 3.4.3). By
//                 summation by parts, no score exceeds it times P times the largest difference of adjacent pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/table_rows.h"
#include "posenc/settings/settings.h"

namespace posenc {

class DistanceCurves {
 public:
  // Ignores the plan's attention scaling and xPos centre. `axes`: number of axes of a distance. Errors name the field
  // within an AnalyzeRequest.
  static absl::StatusOr<DistanceCurves> Create(RotaryPlan plan, int64_t axes, Positions distances, int64_t count,
                                               const Limits& limits);

  int64_t count() const { return rows_.positions().tokens(); }

  // Writes count() float64 values to each output; no alignment needed. Cosines and sines are correctly rounded and
  // summed from the first pair to the last, so every processor gives the same bytes.
  absl::Status Write(std::byte* cosine_sum, std::byte* decay_bound, WorkPool& pool,
                     const Cancellation& cancelled) const;

 private:
  explicit DistanceCurves(TableRows rows) : rows_(std::move(rows)) {}

  TableRows rows_;
};

}  // namespace posenc
