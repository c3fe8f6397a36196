// Positional terms of attention scores that depend on q and k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_shape.h"
#include "posenc/relative/head_rows.h"
#include "posenc/settings/relative_settings.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeScoresCall {
  RelativeMethod method;
  Layout layout = Layout::kBHSD;
  BiasGeometry geometry;
  std::optional<Mask> mask;
  bool content = false;
  std::optional<double> scale;
  DType dtype = DType::kFP32;
  Precision precision;
  TensorShape q;
  std::optional<TensorShape> k;
  std::optional<TensorShape> add_to;  // [B, H, Sq, Sk], of `dtype`
};

struct DistanceBias;
struct RelativeTables;
struct Slab;
class RelativeSums;

// A validated RelativeScores call. Immutable and thread-safe; it can run any number of times.
class RelativeScores {
 public:
  static absl::StatusOr<RelativeScores> Create(RelativeScoresCall call, const Limits& limits);

  const TensorShape& shape() const { return shape_; }  // [B, H, Sq, Sk]
  int64_t bytes() const { return bytes_; }             // of the answer
  const RelativeMethod& method() const { return call_.method; }
  double scale() const { return scale_; }

  // k and add_to are null if absent; add_to may equal `out` (in place). No alignment needed.
  struct Buffers {
    const std::byte* q;
    const std::byte* k;
    const std::byte* add_to;
    std::byte* out;
  };
  absl::Status WriteScores(const Buffers& buffers, WorkPool& pool, const Cancellation& cancelled) const;

 private:
  explicit RelativeScores(RelativeScoresCall call) : call_(std::move(call)) {}
  absl::Status LayOut(const Limits& limits);
  absl::Status LayPositions(const Limits& limits);
  DistanceBias RowWork(const Slab& slab, int64_t i) const;
  // A bound of the bytes that computing a slab takes.
  int64_t SlabBytes(const RelativeSums& terms, int64_t queries) const;
  void AddCope(const RelativeSums& terms, const Slab& slab, double* sums) const;
  // factors: of the term, for each query position; absent: 1.
  void Write(const RelativeSums& terms, const RelativeTables& tables, const Slab& slab, const Buffers& buffers,
             const std::optional<Matrix<double>>& factors, const double* sums) const;
  // True if the term is rounded to the answer's type before what is done with it next.
  bool RoundsTerm() const;

  RelativeScoresCall call_;
  HeadRows q_;
  std::optional<HeadRows> k_;
  TensorShape shape_;
  int64_t bytes_ = 0;
  double scale_ = 1;
  RelativeShape relative_;
  int64_t head_start_ = 0;
  int64_t keys_ = 0;
  Matrix<double> query_positions_, key_positions_;
};

}  // namespace posenc
