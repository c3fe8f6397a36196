#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/sigmoid.h"

namespace posenc {

absl::Status Complete(CopeSettings& s, const RelativeShape& shape, const Limits&) {
  const Matrix<float>& table = s.position_embeddings;
  if (table.rows < 1 || table.columns != shape.head_dim) {
    return InvalidArgument("MISMATCH", "position_embeddings.shape", fmt::format("[{}, {}]", table.rows, table.columns),
                           fmt::format("must be [P, {}], P >= 1", shape.head_dim));
  }
  return CheckFinite("position_embeddings", table.values);
}

absl::Status CheckPositions(const CopeSettings&, const RelativeShape&, const Limits&) { return absl::OkStatus(); }

absl::StatusOr<RelativeTables> MakeTables(const CopeSettings& s, const RelativeShape&, Frequencies, WorkPool&,
                                          const Cancellation&) {
  const Matrix<float>& table = s.position_embeddings;
  RelativeTables tables;
  tables.of_query = HeadTable{table.rows, table.columns, table.columns, true, table.values};
  return tables;
}

void AddCopeRow(absl::Span<const float> logits, const double* products, size_t stride, int64_t positions,
                double* sums) {
  constexpr size_t kTogether = 4096;
  double gates[kTogether];
  const auto most = static_cast<double>(positions - 1);
  double position = 0;
  for (size_t done = 0; done < logits.size(); done += kTogether) {
    if (done > 0) InterruptionPointOfStep(static_cast<int64_t>(done));
    const size_t end = logits.size() - done, begin = end - std::min(end, kTogether);
    std::copy(logits.begin() + begin, logits.begin() + end, gates);
    Sigmoid(gates, end - begin);
    for (size_t j = end; j-- > begin;) {
      position += gates[j - begin];
      // NaN products make the position NaN: the index stays in range, and the weight makes the sum NaN.
      const double at = position < most ? position : std::isnan(position) ? 0 : most;
      const double below = std::floor(at), weight = std::isnan(position) ? position : at - below;
      const auto n = static_cast<size_t>(below), next = static_cast<size_t>(std::ceil(at));
      sums[j] += (1 - weight) * products[n * stride] + weight * products[next * stride];
    }
  }
}

}  // namespace posenc
