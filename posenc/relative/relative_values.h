// Shaw's term of the attention output: each query's probabilities times the rows of a table indexed by distance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/relative/head_rows.h"
#include "posenc/settings/relative_settings.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeValuesCall {
  ShawSettings shaw;
  Layout layout = Layout::kBHSD;
  BiasGeometry geometry;
  DType dtype = DType::kFP32;
  Precision precision;
  TensorShape probabilities;          // [B, H, Sq, Sk]
  std::optional<TensorShape> add_to;  // shape of the answer, of `dtype`
};

// A validated RelativeValues call. Immutable and thread-safe; it can run any number of times.
class RelativeValues {
 public:
  static absl::StatusOr<RelativeValues> Create(RelativeValuesCall call, const Limits& limits);

  const TensorShape& shape() const { return shape_; }
  int64_t bytes() const { return bytes_; }  // of the answer
  const ShawSettings& shaw() const { return call_.shaw; }

  // add_to is null if absent, and may equal `out` (in place). No alignment needed.
  absl::Status WriteValues(const std::byte* probabilities, const std::byte* add_to, std::byte* out, WorkPool& pool,
                           const Cancellation& cancelled) const;

 private:
  explicit RelativeValues(RelativeValuesCall call) : call_(std::move(call)) {}

  RelativeValuesCall call_;
  HeadRows probabilities_, out_;
  TensorShape shape_;
  int64_t bytes_ = 0;
  Distances distances_{0, 0};
  Matrix<double> query_positions_, key_positions_;
};

}  // namespace posenc
