// Valid requests for relative scores, one per method, and changes that make them invalid.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/service/call.h"

namespace posenc::bad_relative {

using R = v1::RelativeScoresRequest;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

inline v1::Tensor Zeros(std::vector<int64_t> shape, DType dtype = DType::kFP32) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return MakeTensor(dtype, std::move(shape), std::vector<double>(count));
}
inline v1::Tensor Doubles(std::vector<int64_t> shape, const std::vector<double>& values) {
  return MakeTensor(DType::kFP64, std::move(shape), values);
}
inline v1::Projection Weights(std::vector<int64_t> shape) {
  v1::Projection projection;
  *projection.mutable_weight() = Zeros(std::move(shape));
  projection.set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  return projection;
}
inline v1::LayerNorm Norm(int64_t width) {
  v1::LayerNorm norm;
  *norm.mutable_weight() = Zeros({width});
  *norm.mutable_bias() = Zeros({width});
  norm.set_epsilon(1e-7);
  return norm;
}

// A request with two heads of four channels, three queries and keys, and one head of keys.
inline R Common(bool with_keys) {
  R request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(false);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_q() = Zeros({1, 2, 3, 4});
  if (with_keys) *request.mutable_k() = Zeros({1, 1, 3, 4});
  return request;
}
inline R OfShaw() {
  R request = Common(false);
  auto& shaw = *request.mutable_method()->mutable_shaw();
  *shaw.mutable_table() = Zeros({5, 4});
  shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.set_clip(true);
  return request;
}
inline R OfContent() {
  R request = OfShaw();
  request.set_content(true);
  *request.mutable_k() = Zeros({1, 1, 3, 4});
  return request;
}
inline R OfTransformerXl() {
  R request = Common(false);
  *request.mutable_method()->mutable_transformer_xl()->mutable_position() = Weights({8, 6});
  return request;
}
inline R OfTupe() {
  R request = Common(false);
  auto& tupe = *request.mutable_method()->mutable_tupe();
  *tupe.mutable_position_embeddings() = Zeros({4, 6});
  *tupe.mutable_layer_norm() = Norm(6);
  *tupe.mutable_query() = Weights({8, 6});
  *tupe.mutable_key() = Weights({8, 6});
  tupe.mutable_relative_bias()->set_bidirectional(true);
  *tupe.mutable_relative_bias_table() = Zeros({32, 2});
  tupe.set_relative_bias_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  tupe.set_cls(v1::TUPE_CLS_UNTIED_WITHOUT_BIAS);
  return request;
}
inline R OfDeberta() {
  R request = Common(true);
  auto& deberta = *request.mutable_method()->mutable_deberta();
  *deberta.mutable_relative_embeddings() = Zeros({16, 6});
  *deberta.mutable_layer_norm() = Norm(6);
  *deberta.mutable_key() = Weights({8, 6});
  *deberta.mutable_query() = Weights({8, 6});
  deberta.set_position_buckets(8);
  deberta.set_max_relative_positions(16);
  deberta.set_distance(v1::DEBERTA_DISTANCE_UNBOUNDED);
  return request;
}
inline R OfWpr() {
  R request = Common(false);
  auto& wpr = *request.mutable_method()->mutable_wpr();
  wpr.set_wavelet(v1::WAVELET_RICKER);
  wpr.set_scales(2);
  wpr.set_channels(v1::WPR_CHANNELS_SHIFT_FASTEST);
  wpr.set_distance(v1::WPR_DISTANCE_QUERY_MINUS_KEY);
  return request;
}
inline R OfCope() {
  R request = Common(true);
  *request.mutable_method()->mutable_cope()->mutable_position_embeddings() = Zeros({3, 4});
  return request;
}
inline R OfInkling() {
  R request = Common(false);
  auto& inkling = *request.mutable_method()->mutable_inkling();
  *inkling.mutable_projection() = Zeros({4, 2});
  inkling.set_log_scaling_alpha(0.1);
  inkling.set_log_scaling_n_floor(2);
  inkling.set_scaled(v1::INKLING_SCALED_BIAS);
  return request;
}
inline v1::Shaw& Shaw(R& r) { return *r.mutable_method()->mutable_shaw(); }
inline v1::TransformerXl& Xl(R& r) { return *r.mutable_method()->mutable_transformer_xl(); }
inline v1::Tupe& Tupe(R& r) { return *r.mutable_method()->mutable_tupe(); }
inline v1::Deberta& Deberta(R& r) { return *r.mutable_method()->mutable_deberta(); }
inline v1::Wpr& Wpr(R& r) { return *r.mutable_method()->mutable_wpr(); }
inline v1::Cope& Cope(R& r) { return *r.mutable_method()->mutable_cope(); }
inline v1::Inkling& Inkling(R& r) { return *r.mutable_method()->mutable_inkling(); }
inline v1::BiasGeometry& G(R& r) { return *r.mutable_geometry(); }
inline v1::Mask& M(R& r) {
  r.mutable_mask()->set_fill_value(-1);
  r.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  return *r.mutable_mask();
}

template <class Request>
struct Case {
  const char* what;
  Request (*valid)();
  std::function<void(Request&)> change;
  const char* reason;
  const char* field;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }
};

class BadRelativeScores : public testing::TestWithParam<Case<R>> {};

// Field prefixes in errors.
#define SHAW "method.shaw."
#define XL "method.transformer_xl."
#define TUPE "method.tupe."
#define DEBERTA "method.deberta."
#define WPR "method.wpr."
#define COPE "method.cope."
#define INKLING "method.inkling."

}  // namespace posenc::bad_relative
