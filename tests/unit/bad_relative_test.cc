// Relative scores and values that a caller may get wrong: each refused with its reason and its field. Empty ones are
// not wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/call.h"

namespace posenc {
namespace {

using R = v1::RelativeScoresRequest;
using V = v1::RelativeValuesRequest;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

v1::Tensor Zeros(std::vector<int64_t> shape, DType dtype = DType::kFP32) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return MakeTensor(dtype, std::move(shape), std::vector<double>(count));
}
// All 0 but the last.
v1::Tensor WithLast(std::vector<int64_t> shape, double last) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<double> values(count);
  values.back() = last;
  return MakeTensor(DType::kFP32, std::move(shape), values);
}
v1::Tensor Doubles(std::vector<int64_t> shape, const std::vector<double>& values) {
  return MakeTensor(DType::kFP64, std::move(shape), values);
}
v1::Projection Weights(std::vector<int64_t> shape) {
  v1::Projection projection;
  *projection.mutable_weight() = Zeros(std::move(shape));
  projection.set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  return projection;
}
v1::LayerNorm Norm(int64_t width) {
  v1::LayerNorm norm;
  *norm.mutable_weight() = Zeros({width});
  *norm.mutable_bias() = Zeros({width});
  norm.set_epsilon(1e-7);
  return norm;
}

// Two heads of four channels, three queries and keys, one head of keys.
R Common(bool with_keys) {
  R request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(false);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_q() = Zeros({1, 2, 3, 4});
  if (with_keys) *request.mutable_k() = Zeros({1, 1, 3, 4});
  return request;
}
R OfShaw() {
  R request = Common(false);
  auto& shaw = *request.mutable_method()->mutable_shaw();
  *shaw.mutable_table() = Zeros({5, 4});
  shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.set_clip(true);
  return request;
}
R OfContent() {
  R request = OfShaw();
  request.set_content(true);
  *request.mutable_k() = Zeros({1, 1, 3, 4});
  return request;
}
R OfTransformerXl() {
  R request = Common(false);
  *request.mutable_method()->mutable_transformer_xl()->mutable_position() = Weights({8, 6});
  return request;
}
R OfTupe() {
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
R OfDeberta() {
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
R OfWpr() {
  R request = Common(false);
  auto& wpr = *request.mutable_method()->mutable_wpr();
  wpr.set_wavelet(v1::WAVELET_RICKER);
  wpr.set_scales(2);
  wpr.set_channels(v1::WPR_CHANNELS_SHIFT_FASTEST);
  wpr.set_distance(v1::WPR_DISTANCE_QUERY_MINUS_KEY);
  return request;
}
R OfCope() {
  R request = Common(true);
  *request.mutable_method()->mutable_cope()->mutable_position_embeddings() = Zeros({3, 4});
  return request;
}
v1::Shaw& Shaw(R& r) { return *r.mutable_method()->mutable_shaw(); }
v1::TransformerXl& Xl(R& r) { return *r.mutable_method()->mutable_transformer_xl(); }
v1::Tupe& Tupe(R& r) { return *r.mutable_method()->mutable_tupe(); }
v1::Deberta& Deberta(R& r) { return *r.mutable_method()->mutable_deberta(); }
v1::Wpr& Wpr(R& r) { return *r.mutable_method()->mutable_wpr(); }
v1::Cope& Cope(R& r) { return *r.mutable_method()->mutable_cope(); }
v1::BiasGeometry& G(R& r) { return *r.mutable_geometry(); }
v1::Mask& M(R& r) {
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

TEST_P(BadRelativeScores, AreRefused) {
  R request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case<R> kRequests[] = {
    {"no method", OfShaw, [](R& r) { r.clear_method(); }, "MISSING", "method"},
    {"no layout", OfShaw, [](R& r) { r.clear_layout(); }, "MISSING", "layout"},
    {"packed tokens", OfShaw, [](R& r) { r.set_layout(v1::LAYOUT_THD); }, "UNSUPPORTED", "layout"},
    {"no content", OfShaw, [](R& r) { r.clear_content(); }, "MISSING", "content"},
    {"no dtype", OfShaw, [](R& r) { r.clear_dtype(); }, "MISSING", "dtype"},
    {"float64", OfShaw, [](R& r) { r.set_dtype(v1::DATA_TYPE_FP64); }, "UNSUPPORTED", "dtype"},
    {"NaN scale", OfShaw, [](R& r) { r.set_scale(NAN); }, "OUT_OF_RANGE", "scale"},
    {"infinite scale", OfShaw, [](R& r) { r.set_scale(-INFINITY); }, "OUT_OF_RANGE", "scale"},
    {"no q", OfShaw, [](R& r) { r.clear_q(); }, "MISSING", "q"},
    {"q of three axes", OfShaw,
     [](R& r) {
       *r.mutable_q() = Zeros({2, 3, 4});
     },
     "MISMATCH", "q.shape"},
    {"q of float64", OfShaw,
     [](R& r) {
       *r.mutable_q() = Doubles({1, 1, 1, 1}, {1});
     },
     "UNSUPPORTED", "q.dtype"},
    {"q without channels", OfShaw,
     [](R& r) {
       *r.mutable_q() = Zeros({1, 2, 3, 0});
     },
     "OUT_OF_RANGE", "q.shape"},
    {"q of too many channels", OfShaw,
     [](R& r) {
       *r.mutable_q() = Zeros({1, 1, 1, 65537});
     },
     "OUT_OF_RANGE", "q.shape"},
    {"k where nothing reads it", OfShaw,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 2, 3, 4});
     },
     "NOT_READ", "k"},
    {"no k with content", OfContent, [](R& r) { r.clear_k(); }, "MISSING", "k"},
    {"no k for key_term", OfShaw, [](R& r) { Shaw(r).set_key_term(true); }, "MISSING", "k"},
    {"no k for DeBERTa's query", OfDeberta, [](R& r) { r.clear_k(); }, "MISSING", "k"},
    {"k beside DeBERTa's key alone", OfDeberta, [](R& r) { Deberta(r).clear_query(); }, "NOT_READ", "k"},
    {"CoPE without k", OfCope, [](R& r) { r.clear_k(); }, "MISSING", "k"},
    {"k of three axes", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 3, 4});
     },
     "MISMATCH", "k.shape"},
    {"k of float64", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 1, 3, 4}, DType::kFP64);
     },
     "UNSUPPORTED", "k.dtype"},
    {"k of another type", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 1, 3, 4}, DType::kFP16);
     },
     "MISMATCH", "k.shape"},
    {"k of another batch", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({2, 1, 3, 4});
     },
     "MISMATCH", "k.shape"},
    {"k of other channels", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 1, 3, 5});
     },
     "MISMATCH", "k.shape"},
    {"k's heads do not divide", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 3, 3, 4});
     },
     "MISMATCH", "k.shape"},
    {"k without heads", OfContent,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 0, 3, 4});
     },
     "MISMATCH", "k.shape"},
    {"more queries than q has", OfShaw, [](R& r) { G(r).set_query_length(4); }, "MISMATCH", "geometry.query_length"},
    {"more keys than k has", OfContent, [](R& r) { G(r).set_key_length(4); }, "MISMATCH", "geometry.key_length"},
    {"queries nowhere", OfShaw, [](R& r) { G(r).set_key_length(4); }, "MISSING", "geometry.query"},
    {"negative length", OfShaw, [](R& r) { G(r).set_key_length(-1); }, "OUT_OF_RANGE", "geometry.key_length"},
    {"negative head", OfShaw, [](R& r) { G(r).set_head_start(-1); }, "OUT_OF_RANGE", "geometry.head_start"},
    {"head too large", OfShaw, [](R& r) { G(r).set_head_start(kMost); }, "OUT_OF_RANGE", "geometry.head_start"},
    {"other number of heads", OfShaw, [](R& r) { G(r).set_head_count(1); }, "MISMATCH", "geometry.head_count"},
    {"offsets of another batch", OfShaw,
     [](R& r) {
       for (int64_t n : {0, 1}) G(r).mutable_query_offsets()->add_offset(n);
     },
     "MISMATCH", "geometry.query_offsets"},
    {"positions of another batch", OfShaw,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({2, 3}, {0, 1, 2, 0, 1, 2});
     },
     "MISMATCH", "geometry.key_positions"},
    {"too few positions", OfShaw,
     [](R& r) {
       *G(r).mutable_query_positions() = Doubles({2}, {0, 1});
     },
     "MISMATCH", "geometry.query_positions.shape"},
    {"NaN position", OfCope,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0, NAN, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[1]"},
    {"fractional position", OfShaw,
     [](R& r) {
       *G(r).mutable_query_positions() = Doubles({3}, {0, 1, 2.5});
     },
     "OUT_OF_RANGE", "geometry.query_positions[2]"},
    {"fractional key", OfWpr,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0.5, 1, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[0]"},
    {"mask of another batch", OfShaw,
     [](R& r) {
       *M(r).mutable_key_valid() = MakeTensor(DType::kBOOL, {2, 3}, std::vector<uint8_t>(6, 1));
     },
     "MISMATCH", "mask.key_valid"},
    {"mask without fill", OfShaw, [](R& r) { M(r).clear_fill(); }, "MISSING", "mask.fill"},
    {"negative window", OfShaw, [](R& r) { M(r).set_window_left(-1); }, "OUT_OF_RANGE", "mask.window_left"},
    {"add_to of another shape", OfShaw,
     [](R& r) {
       *r.mutable_add_to() = Zeros({1, 2, 3, 4});
     },
     "MISMATCH", "add_to.shape"},
    {"add_to of another type", OfShaw,
     [](R& r) {
       *r.mutable_add_to() = Zeros({1, 2, 3, 3}, DType::kBF16);
     },
     "CONFLICT", "dtype"},
    {"add_to of float64", OfShaw,
     [](R& r) {
       r.clear_dtype();
       *r.mutable_add_to() = Zeros({1, 2, 3, 3}, DType::kFP64);
     },
     "UNSUPPORTED", "add_to.dtype"},
};
INSTANTIATE_TEST_SUITE_P(Requests, BadRelativeScores, testing::ValuesIn(kRequests));

#define SHAW "method.shaw."
#define XL "method.transformer_xl."
const Case<R> kOfQueries[] = {
    {"no table", OfShaw, [](R& r) { Shaw(r).clear_table(); }, "MISSING", SHAW "table.dtype"},
    {"an even number of rows", OfShaw,
     [](R& r) {
       *Shaw(r).mutable_table() = Zeros({4, 4});
     },
     "MISMATCH", SHAW "table.shape"},
    {"no rows", OfShaw,
     [](R& r) {
       *Shaw(r).mutable_table() = Zeros({0, 4});
     },
     "MISMATCH", SHAW "table.shape"},
    {"rows of another width", OfShaw,
     [](R& r) {
       *Shaw(r).mutable_table() = Zeros({5, 8});
     },
     "MISMATCH", SHAW "table.shape"},
    {"a table of one axis", OfShaw, [](R& r) { *Shaw(r).mutable_table() = Zeros({4}); }, "MISMATCH",
     SHAW "table.shape"},
    {"NaN in the table", OfShaw,
     [](R& r) {
       *Shaw(r).mutable_table() = WithLast({5, 4}, NAN);
     },
     "OUT_OF_RANGE", SHAW "table[19]"},
    {"before the table", OfShaw, [](R& r) { Shaw(r).set_before(-1); }, "OUT_OF_RANGE", SHAW "before"},
    {"after the table", OfShaw, [](R& r) { Shaw(r).set_before(5); }, "OUT_OF_RANGE", SHAW "before"},
    {"far before the table", OfShaw, [](R& r) { Shaw(r).set_before(kLeast); }, "OUT_OF_RANGE", SHAW "before"},
    {"too few rows after the query", OfShaw,
     [](R& r) {
       Shaw(r).set_clip(false);
       Shaw(r).set_before(3);
     },
     "OUT_OF_RANGE", SHAW "table"},
    {"too few rows before it", OfShaw,
     [](R& r) {
       Shaw(r).set_clip(false);
       Shaw(r).set_before(3);
       Shaw(r).set_order(v1::SHAW_ORDER_QUERY_MINUS_KEY);
     },
     "OUT_OF_RANGE", SHAW "table"},
    {"an encoding of another release", OfTransformerXl,
     [](R& r) { Xl(r).set_encoding(static_cast<v1::TransformerXlEncoding>(7)); }, "UNKNOWN_VALUE", XL "encoding"},
    {"no order", OfShaw, [](R& r) { Shaw(r).clear_order(); }, "MISSING", SHAW "order"},
    {"no clip", OfShaw, [](R& r) { Shaw(r).clear_clip(); }, "MISSING", SHAW "clip"},
    {"beyond the table", OfShaw,
     [](R& r) {
       Shaw(r).set_clip(false);
       G(r).set_query_offset(1);
     },
     "OUT_OF_RANGE", SHAW "table"},
    {"no weight", OfTransformerXl, [](R& r) { Xl(r).clear_position(); }, "MISSING", XL "position.weight"},
    {"no layout", OfTransformerXl, [](R& r) { Xl(r).mutable_position()->clear_layout(); }, "MISSING",
     XL "position.layout"},
    {"layout alone", OfTransformerXl, [](R& r) { Xl(r).mutable_position()->clear_weight(); }, "NOT_READ",
     XL "position.layout"},
    {"bias of W_kR", OfTransformerXl, [](R& r) { *Xl(r).mutable_position()->mutable_bias() = Zeros({8}); }, "NOT_READ",
     XL "position.bias"},
    {"odd d_model", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({8, 5});
     },
     "OUT_OF_RANGE", XL "position.weight.shape"},
    {"d_model too large", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({8, 65538});
     },
     "OUT_OF_RANGE", XL "position.weight.shape"},
    {"no d_model", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({8, 0});
     },
     "OUT_OF_RANGE", XL "position.weight.shape"},
    {"too few heads", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({4, 6});
     },
     "MISMATCH", XL "position.weight.shape"},
    {"part of a head", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({10, 6});
     },
     "MISMATCH", XL "position.weight.shape"},
    {"heads behind the last", OfTransformerXl, [](R& r) { G(r).set_head_start(1); }, "MISMATCH",
     XL "position.weight.shape"},
    {"infinite weight", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position()->mutable_weight() = WithLast({8, 6}, INFINITY);
     },
     "OUT_OF_RANGE", XL "position.weight[47]"},
    {"v of too few heads", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position_bias() = Zeros({1, 4});
     },
     "MISMATCH", XL "position_bias.shape"},
    {"NaN in v", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position_bias() = WithLast({2, 4}, NAN);
     },
     "OUT_OF_RANGE", XL "position_bias[7]"},
    {"u without content", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_content_bias() = Zeros({2, 4});
     },
     "NOT_READ", XL "content_bias"},
    {"u of another width", OfTransformerXl,
     [](R& r) {
       r.set_content(true);
       *r.mutable_k() = Zeros({1, 1, 3, 4});
       *Xl(r).mutable_content_bias() = Zeros({2, 3});
     },
     "MISMATCH", XL "content_bias.shape"},
    {"clamped to nothing", OfTransformerXl, [](R& r) { Xl(r).set_clamp_len(0); }, "OUT_OF_RANGE", XL "clamp_len"},
};
INSTANTIATE_TEST_SUITE_P(OfQueries, BadRelativeScores, testing::ValuesIn(kOfQueries));

#define TUPE "method.tupe."
#define DEBERTA "method.deberta."
const Case<R> kProjected[] = {
    {"no cls", OfTupe, [](R& r) { Tupe(r).clear_cls(); }, "MISSING", TUPE "cls"},
    {"without a bias that is not there", OfTupe,
     [](R& r) {
       Tupe(r).clear_relative_bias();
       Tupe(r).clear_relative_bias_table();
       Tupe(r).clear_relative_bias_table_layout();
     },
     "CONFLICT", TUPE "cls"},
    {"buckets without table", OfTupe,
     [](R& r) {
       Tupe(r).clear_relative_bias_table();
       Tupe(r).clear_relative_bias_table_layout();
     },
     "MISSING", TUPE "relative_bias_table"},
    {"table's layout alone", OfTupe, [](R& r) { Tupe(r).clear_relative_bias_table(); }, "NOT_READ",
     TUPE "relative_bias_table_layout"},
    {"table without buckets", OfTupe, [](R& r) { Tupe(r).clear_relative_bias(); }, "MISSING", TUPE "relative_bias"},
    {"table without layout", OfTupe, [](R& r) { Tupe(r).clear_relative_bias_table_layout(); }, "MISSING",
     TUPE "relative_bias_table_layout"},
    {"no direction", OfTupe, [](R& r) { Tupe(r).mutable_relative_bias()->clear_bidirectional(); }, "MISSING",
     TUPE "relative_bias.bidirectional"},
    {"no buckets", OfTupe, [](R& r) { Tupe(r).mutable_relative_bias()->set_num_buckets(0); }, "OUT_OF_RANGE",
     TUPE "relative_bias.num_buckets"},
    {"table of other buckets", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_relative_bias_table() = Zeros({30, 2});
     },
     "MISMATCH", TUPE "relative_bias_table.shape"},
    {"table of too few heads", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_relative_bias_table() = Zeros({32, 1});
     },
     "MISMATCH", TUPE "relative_bias_table.shape"},
    {"NaN bias", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_relative_bias_table() = WithLast({32, 2}, NAN);
     },
     "OUT_OF_RANGE", TUPE "relative_bias_table[63]"},
    {"NaN embedding", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_position_embeddings() = WithLast({4, 6}, NAN);
     },
     "OUT_OF_RANGE", TUPE "position_embeddings[23]"},
    {"position behind the table", OfTupe, [](R& r) { G(r).set_query_offset(1); }, "OUT_OF_RANGE",
     TUPE "position_embeddings"},
    {"position before the table", OfTupe, [](R& r) { G(r).set_query_offset(-1); }, "OUT_OF_RANGE",
     TUPE "position_embeddings"},
    {"norm without epsilon", OfTupe, [](R& r) { Tupe(r).mutable_layer_norm()->clear_epsilon(); }, "MISSING",
     TUPE "layer_norm.epsilon"},
    {"epsilon 0", OfTupe, [](R& r) { Tupe(r).mutable_layer_norm()->set_epsilon(0); }, "OUT_OF_RANGE",
     TUPE "layer_norm.epsilon"},
    {"NaN epsilon", OfDeberta, [](R& r) { Deberta(r).mutable_layer_norm()->set_epsilon(NAN); }, "OUT_OF_RANGE",
     DEBERTA "layer_norm.epsilon"},
    {"norm of another width", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_weight() = Zeros({5}); },
     "MISMATCH", TUPE "layer_norm.weight.shape"},
    {"NaN in the norm", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_bias() = WithLast({6}, NAN); },
     "OUT_OF_RANGE", TUPE "layer_norm.bias[5]"},
    {"width without a weight", OfTupe, [](R& r) { Tupe(r).clear_query(); }, "MISMATCH", TUPE "query.weight.shape"},
    {"weight of another width", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_key() = Weights({8, 5});
     },
     "MISMATCH", TUPE "key.weight.shape"},
    {"bias of another width", OfTupe, [](R& r) { *Tupe(r).mutable_key()->mutable_bias() = Zeros({7}); }, "MISMATCH",
     TUPE "key.bias.shape"},
    {"NaN in the bias", OfDeberta, [](R& r) { *Deberta(r).mutable_key()->mutable_bias() = WithLast({8}, NAN); },
     "OUT_OF_RANGE", DEBERTA "key.bias[7]"},
    {"no term", OfDeberta,
     [](R& r) {
       Deberta(r).clear_key();
       Deberta(r).clear_query();
       r.clear_k();
     },
     "MISSING", DEBERTA "key"},
    {"no max_relative_positions", OfDeberta, [](R& r) { Deberta(r).clear_max_relative_positions(); }, "OUT_OF_RANGE",
     DEBERTA "max_relative_positions"},
    {"too many positions", OfDeberta, [](R& r) { Deberta(r).set_max_relative_positions(65537); }, "OUT_OF_RANGE",
     DEBERTA "max_relative_positions"},
    {"odd number of buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(7); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"two buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(2); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"more buckets than positions", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(30); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"least number of buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(kLeast); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"table too small", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = Zeros({15, 6});
     },
     "MISMATCH", DEBERTA "relative_embeddings.shape"},
    {"table too small for v1", OfDeberta, [](R& r) { Deberta(r).clear_position_buckets(); }, "MISMATCH",
     DEBERTA "relative_embeddings.shape"},
    {"NaN in the table", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = WithLast({16, 6}, NAN);
     },
     "OUT_OF_RANGE", DEBERTA "relative_embeddings[95]"},
    {"no distance", OfDeberta, [](R& r) { Deberta(r).clear_distance(); }, "MISSING", DEBERTA "distance"},
};
INSTANTIATE_TEST_SUITE_P(Projected, BadRelativeScores, testing::ValuesIn(kProjected));

#define WPR "method.wpr."
#define COPE "method.cope."
const Case<R> kOthers[] = {
    {"no wavelet", OfWpr, [](R& r) { Wpr(r).clear_wavelet(); }, "MISSING", WPR "wavelet"},
    {"no channels", OfWpr, [](R& r) { Wpr(r).clear_channels(); }, "MISSING", WPR "channels"},
    {"no distance", OfWpr, [](R& r) { Wpr(r).clear_distance(); }, "MISSING", WPR "distance"},
    {"scales that do not divide d", OfWpr, [](R& r) { Wpr(r).set_scales(3); }, "MISMATCH", WPR "scales"},
    {"eight by default", OfWpr, [](R& r) { Wpr(r).clear_scales(); }, "MISMATCH", WPR "scales"},
    {"no scales", OfWpr, [](R& r) { Wpr(r).set_scales(0); }, "MISMATCH", WPR "scales"},
    {"negative scales", OfWpr, [](R& r) { Wpr(r).set_scales(-2); }, "MISMATCH", WPR "scales"},
    {"exponent too large", OfWpr, [](R& r) { Wpr(r).set_first_exponent(33); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"exponent too small", OfWpr, [](R& r) { Wpr(r).set_first_exponent(-33); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"least exponent", OfWpr, [](R& r) { Wpr(r).set_first_exponent(kLeast); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"Morlet without c", OfWpr, [](R& r) { Wpr(r).set_wavelet(v1::WAVELET_MORLET); }, "MISSING",
     WPR "morlet_frequency"},
    {"c of another", OfWpr, [](R& r) { Wpr(r).set_morlet_frequency(1); }, "NOT_READ", WPR "morlet_frequency"},
    {"infinite c", OfWpr,
     [](R& r) {
       Wpr(r).set_wavelet(v1::WAVELET_MORLET);
       Wpr(r).set_morlet_frequency(INFINITY);
     },
     "OUT_OF_RANGE", WPR "morlet_frequency"},
    {"no embeddings", OfCope,
     [](R& r) {
       *Cope(r).mutable_position_embeddings() = Zeros({0, 4});
     },
     "MISMATCH", COPE "position_embeddings.shape"},
    {"embeddings of another width", OfCope,
     [](R& r) {
       *Cope(r).mutable_position_embeddings() = Zeros({3, 3});
     },
     "MISMATCH", COPE "position_embeddings.shape"},
    {"NaN embedding", OfCope,
     [](R& r) {
       *Cope(r).mutable_position_embeddings() = WithLast({3, 4}, NAN);
     },
     "OUT_OF_RANGE", COPE "position_embeddings[11]"},
};
INSTANTIATE_TEST_SUITE_P(Others, BadRelativeScores, testing::ValuesIn(kOthers));

// CoPE compares positions, and that is all.
TEST(RelativeScores, CopeTakesFractions) {
  R request = OfCope();
  *G(request).mutable_key_positions() = Doubles({3}, {0, 0.5, 2e9});
  EXPECT_THAT(Call(request), IsOk());
}

struct Limit {
  const char* what;
  R (*valid)();
  std::function<void(R&, Limits&)> change;
  const char* field;
};

TEST(RelativeScores, AboveALimit) {
  const Limit limits[] = {
      {"answer", OfShaw, [](R&, Limits& l) { l.max_output_bytes = 2 * 3 * 3 * 4 - 1; }, "answer"},
      {"distances", OfShaw,
       [](R& r, Limits&) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1 << 22});
       },
       "geometry"},
      {"encodings", OfTransformerXl,
       [](R& r, Limits& l) {
         G(r).set_query_offset(10000);
         *G(r).mutable_key_positions() = Doubles({3}, {0, 10000, 20000});
         l.max_output_bytes = 20000 * 14 * 4;
       },
       XL "position.weight"},
      {"rows of TUPE", OfTupe, [](R&, Limits& l) { l.max_output_bytes = 4 * 8 * 4 - 1; }, TUPE "position_embeddings"},
      {"rows of DeBERTa", OfDeberta, [](R&, Limits& l) { l.max_output_bytes = 16 * 8 * 4 - 1; },
       DEBERTA "relative_embeddings"},
      {"wavelets", OfWpr,
       [](R& r, Limits& l) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1000});
         l.max_bias_values = 1500;
       },
       WPR "scales"},
      {"rows of wavelets", OfWpr,
       [](R& r, Limits& l) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1000});
         l.max_output_bytes = 1000 * 4 * 4;
       },
       WPR "scales"},
  };
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.what);
    R request = limit.valid();
    Limits narrow;
    ASSERT_THAT(Call(request), IsOk());
    limit.change(request, narrow);
    EXPECT_THAT(Call(request, narrow), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", limit.field));
  }
}

V OfValues() {
  V request;
  *request.mutable_shaw() = OfShaw().method().shaw();
  request.set_layout(v1::LAYOUT_BSHD);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_probabilities() = Zeros({1, 2, 3, 3});
  return request;
}

class BadRelativeValues : public testing::TestWithParam<Case<V>> {};

TEST_P(BadRelativeValues, AreRefused) {
  V request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case<V> kValues[] = {
    {"no shaw", OfValues, [](V& v) { v.clear_shaw(); }, "MISSING", "shaw"},
    {"no layout", OfValues, [](V& v) { v.clear_layout(); }, "MISSING", "layout"},
    {"packed tokens", OfValues, [](V& v) { v.set_layout(v1::LAYOUT_THD); }, "UNSUPPORTED", "layout"},
    {"no dtype", OfValues, [](V& v) { v.clear_dtype(); }, "MISSING", "dtype"},
    {"integers", OfValues, [](V& v) { v.set_dtype(v1::DATA_TYPE_INT32); }, "UNSUPPORTED", "dtype"},
    {"no probabilities", OfValues, [](V& v) { v.clear_probabilities(); }, "MISSING", "probabilities"},
    {"probabilities of three axes", OfValues,
     [](V& v) {
       *v.mutable_probabilities() = Zeros({2, 3, 3});
     },
     "MISMATCH", "probabilities.shape"},
    {"probabilities of float64", OfValues,
     [](V& v) {
       *v.mutable_probabilities() = Zeros({1, 2, 3, 3}, DType::kFP64);
     },
     "UNSUPPORTED", "probabilities.dtype"},
    {"key_term", OfValues, [](V& v) { v.mutable_shaw()->set_key_term(true); }, "NOT_READ", "shaw.key_term"},
    {"no clip", OfValues, [](V& v) { v.mutable_shaw()->clear_clip(); }, "MISSING", "shaw.clip"},
    {"no order", OfValues, [](V& v) { v.mutable_shaw()->clear_order(); }, "MISSING", "shaw.order"},
    {"an even number of rows", OfValues,
     [](V& v) {
       *v.mutable_shaw()->mutable_table() = Zeros({2, 4});
     },
     "MISMATCH", "shaw.table.shape"},
    {"NaN in the table", OfValues,
     [](V& v) {
       *v.mutable_shaw()->mutable_table() = WithLast({5, 4}, NAN);
     },
     "OUT_OF_RANGE", "shaw.table[19]"},
    {"beyond the table", OfValues,
     [](V& v) {
       v.mutable_shaw()->set_clip(false);
       v.mutable_geometry()->set_query_offset(1);
     },
     "OUT_OF_RANGE", "shaw.table"},
    {"heads", OfValues, [](V& v) { v.mutable_geometry()->set_head_start(1); }, "NOT_READ", "geometry.head_start"},
    {"number of heads", OfValues, [](V& v) { v.mutable_geometry()->set_head_count(2); }, "NOT_READ",
     "geometry.head_count"},
    {"other lengths", OfValues, [](V& v) { v.mutable_geometry()->set_key_length(4); }, "MISMATCH",
     "geometry.key_length"},
    {"offsets of another batch", OfValues,
     [](V& v) {
       for (int64_t n : {0, 1}) v.mutable_geometry()->mutable_query_offsets()->add_offset(n);
     },
     "MISMATCH", "geometry.query_offsets"},
    {"fractional position", OfValues,
     [](V& v) {
       *v.mutable_geometry()->mutable_key_positions() = Doubles({3}, {0, 1.5, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[1]"},
    {"add_to of the other layout", OfValues,
     [](V& v) {
       *v.mutable_add_to() = Zeros({1, 2, 3, 4});
     },
     "MISMATCH", "add_to.shape"},
    {"add_to of another type", OfValues,
     [](V& v) {
       *v.mutable_add_to() = Zeros({1, 3, 2, 4}, DType::kFP16);
     },
     "CONFLICT", "dtype"},
};
INSTANTIATE_TEST_SUITE_P(Values, BadRelativeValues, testing::ValuesIn(kValues));

TEST(RelativeValues, AboveALimit) {
  Limits limits;
  limits.max_output_bytes = 3 * 2 * 4 * 4 - 1;
  EXPECT_THAT(Call(OfValues(), limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
  V far = OfValues();
  *far.mutable_geometry()->mutable_key_positions() = Doubles({3}, {0, 1, 1 << 22});
  EXPECT_THAT(Call(far), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "geometry"));
}

// A batch without rows, queries or keys has an empty answer.
TEST(RelativeScores, EmptyTensors) {
  for (R (*valid)() : {OfShaw, OfContent, OfTransformerXl, OfTupe, OfDeberta, OfWpr, OfCope}) {
    struct {
      int64_t batch, queries, keys;
    } const sizes[] = {{0, 3, 3}, {1, 0, 3}, {1, 3, 0}, {1, 0, 0}, {0, 0, 0}};
    for (const auto& [batch, queries, keys] : sizes) {
      SCOPED_TRACE(testing::Message() << valid().method().ShortDebugString().substr(0, 16) << " " << batch << " "
                                      << queries << " " << keys);
      R request = valid();
      *request.mutable_q() = Zeros({batch, 2, queries, 4});
      if (request.has_k()) *request.mutable_k() = Zeros({batch, 1, keys, 4});
      G(request).set_key_length(keys);
      G(request).set_query_offset(0);
      M(request).set_causal(true);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      EXPECT_THAT(ShapeOf(answer->scores()), testing::ElementsAre(batch, 2, queries, keys));
      EXPECT_EQ(answer->scores().data(), "");
    }
  }
}

// Without keys there is nothing to sum, but an answer for each query.
TEST(RelativeValues, EmptyTensors) {
  struct {
    int64_t batch, queries, keys;
  } const sizes[] = {{0, 3, 3}, {1, 0, 3}, {1, 3, 0}, {1, 0, 0}};
  for (const auto& [batch, queries, keys] : sizes) {
    for (bool added : {false, true}) {
      SCOPED_TRACE(testing::Message() << batch << " " << queries << " " << keys << " " << added);
      V request = OfValues();
      *request.mutable_probabilities() = Zeros({batch, 2, queries, keys});
      request.mutable_geometry()->set_query_offset(0);
      std::vector<double> own(batch * queries * 2 * 4, 3.0);
      if (added) *request.mutable_add_to() = MakeTensor(DType::kFP32, {batch, queries, 2, 4}, own);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      EXPECT_THAT(ShapeOf(answer->values()), testing::ElementsAre(batch, queries, 2, 4));
      if (!added) std::fill(own.begin(), own.end(), 0.0);
      EXPECT_EQ(answer->values().data(), Pack(DType::kFP32, own));
    }
  }
}

}  // namespace
}  // namespace posenc
