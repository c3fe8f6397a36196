// Biases and embeddings that a caller may get wrong: each refused with its reason and its field.
#include <gtest/gtest.h>

#include <functional>

#include "tests/reference/golden.h"
#include "tests/unit/call.h"

namespace posenc {
namespace {

using B = v1::GenerateBiasRequest;
using E = v1::GenerateEmbeddingRequest;

v1::Alibi& A(B& r) { return *r.mutable_method()->mutable_alibi(); }
v1::BiasGeometry& G(B& r) { return *r.mutable_geometry(); }
v1::Mask& M(B& r) { return *r.mutable_mask(); }
v1::Sinusoidal& S(E& r) { return *r.mutable_sinusoidal(); }

B ValidBias() {
  B request;
  A(request).set_num_heads(2);
  A(request).set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  A(request).set_form(v1::ALIBI_FORM_CAUSAL);
  G(request).set_query_length(3);
  G(request).set_key_length(3);
  M(request).set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
  M(request).set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

E ValidEmbedding() {
  E request;
  S(request).set_convention(v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR);
  S(request).set_dim(8);
  request.mutable_positions()->set_offset(0);
  request.set_count(4);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

v1::Tensor Flags(std::vector<int64_t> shape, const std::vector<uint8_t>& values) {
  return MakeTensor(DType::kBOOL, std::move(shape), values);
}
v1::Tensor Doubles(std::vector<int64_t> shape, const std::vector<double>& values) {
  return MakeTensor(DType::kFP64, std::move(shape), values);
}

template <class Request>
struct Case {
  const char* what;
  std::function<void(Request&)> change;
  const char* reason;
  const char* field;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }
};

class BadBias : public testing::TestWithParam<Case<B>> {};

TEST_P(BadBias, IsRefused) {
  B request = ValidBias();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

#define ALIBI "method.alibi."
const Case<B> kAlibi[] = {
    {"no method", [](B& r) { r.clear_method(); }, "MISSING", "method"},
    {"no heads", [](B& r) { A(r).set_num_heads(0); }, "OUT_OF_RANGE", "alibi.num_heads"},
    {"negative heads", [](B& r) { A(r).set_num_heads(-4); }, "OUT_OF_RANGE", "alibi.num_heads"},
    {"too many heads", [](B& r) { A(r).set_num_heads(65537); }, "OUT_OF_RANGE", "alibi.num_heads"},
    {"no slopes", [](B& r) { A(r).clear_slopes(); }, "MISSING", "alibi.slopes"},
    {"no rule", [](B& r) { A(r).set_rule(v1::ALIBI_SLOPE_RULE_UNSPECIFIED); }, "MISSING", ALIBI "rule"},
    {"no form", [](B& r) { A(r).clear_form(); }, "MISSING", ALIBI "form"},
    {"range 0", [](B& r) { A(r).set_alibi_bias_max(0); }, "OUT_OF_RANGE", "alibi.alibi_bias_max"},
    {"NaN range", [](B& r) { A(r).set_alibi_bias_max(NAN); }, "OUT_OF_RANGE", "alibi.alibi_bias_max"},
    {"range beside slopes",
     [](B& r) {
       *A(r).mutable_given() = Doubles({2}, {1, 1});
       A(r).set_alibi_bias_max(8);
     },
     "NOT_READ", "alibi.alibi_bias_max"},
    {"too few slopes", [](B& r) { *A(r).mutable_given() = Doubles({1}, {1}); }, "MISMATCH", "alibi.given.shape"},
    {"NaN slope",
     [](B& r) {
       *A(r).mutable_given() = Doubles({2}, {1, NAN});
     },
     "OUT_OF_RANGE", "alibi.given[1]"},
    {"slope infinite in float32",
     [](B& r) {
       *A(r).mutable_given() = Doubles({2}, {1e39, 1});
     },
     "OUT_OF_RANGE", "alibi.given[0]"},
    {"exp overflows",
     [](B& r) {
       *A(r).mutable_log_slopes() = Doubles({2}, {1, 89});
     },
     "OUT_OF_RANGE", "alibi.log_slopes[1]"},
    {"logs per batch row",
     [](B& r) {
       *A(r).mutable_log_slopes() = Doubles({1, 2}, {1, 1});
     },
     "MISMATCH", "alibi.log_slopes.shape"},
    {"asymmetric without the future", [](B& r) { A(r).set_form(v1::ALIBI_FORM_ASYMMETRIC); }, "MISSING",
     "alibi.future_slopes"},
    {"future not read",
     [](B& r) {
       *A(r).mutable_future_slopes() = Doubles({2}, {1, 1});
     },
     "NOT_READ", "alibi.future_slopes"},
    {"position_mask not read",
     [](B& r) {
       *A(r).mutable_position_mask() = Flags({1, 3}, {1, 1, 1});
     },
     "NOT_READ", "alibi.position_mask"},
    {"bias_dtype of integers", [](B& r) { A(r).set_bias_dtype(v1::DATA_TYPE_INT32); }, "UNSUPPORTED",
     "alibi.bias_dtype"},
    {"a model without ALiBi",
     [](B& r) { r.mutable_method()->mutable_model()->set_config_json(golden::ReadText("configs/llama-2-7b.json")); },
     "UNSUPPORTED", "method.model.config_json"},
};
INSTANTIATE_TEST_SUITE_P(Alibi, BadBias, testing::ValuesIn(kAlibi));

const Case<B> kGeometry[] = {
    {"no lengths", [](B& r) { r.clear_geometry(); }, "MISSING", "geometry"},
    {"negative length", [](B& r) { G(r).set_query_length(-1); }, "OUT_OF_RANGE", "geometry.query_length"},
    {"no offset", [](B& r) { G(r).set_query_length(2); }, "MISSING", "geometry.query"},
    {"first head too large", [](B& r) { G(r).set_head_start(3); }, "OUT_OF_RANGE", "geometry.head_start"},
    {"negative first head", [](B& r) { G(r).set_head_start(-1); }, "OUT_OF_RANGE", "geometry.head_start"},
    {"too many heads", [](B& r) { G(r).set_head_start(1), G(r).set_head_count(2); }, "OUT_OF_RANGE",
     "geometry.head_count"},
    {"positions of another length",
     [](B& r) {
       *G(r).mutable_query_positions() = Doubles({2}, {0, 1});
     },
     "MISMATCH", "geometry.query_positions.shape"},
    {"NaN position",
     [](B& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0, 1, NAN});
     },
     "OUT_OF_RANGE", "geometry.key_positions[2]"},
    {"offset at the end", [](B& r) { G(r).set_query_offset(std::numeric_limits<int64_t>::max()); }, "OUT_OF_RANGE",
     "geometry.query_positions[0]"},
    {"batches that disagree",
     [](B& r) {
       G(r).mutable_query_offsets()->add_offset(0);
       *M(r).mutable_key_valid() = Flags({2, 3}, {1, 1, 1, 1, 1, 1});
     },
     "MISMATCH", "mask.key_valid"},
    {"compact with a mask", [](B& r) { r.set_form(v1::BIAS_FORM_COMPACT); }, "CONFLICT", "form"},
    {"compact per batch row",
     [](B& r) {
       r.clear_mask();
       r.set_form(v1::BIAS_FORM_COMPACT);
       G(r).mutable_query_offsets()->add_offset(0);
     },
     "CONFLICT", "form"},
    {"no answer form", [](B& r) { r.clear_form(); }, "MISSING", "form"},
    {"no dtype", [](B& r) { r.clear_dtype(); }, "MISSING", "dtype"},
    {"float64", [](B& r) { r.set_dtype(v1::DATA_TYPE_FP64); }, "UNSUPPORTED", "dtype"},
};
INSTANTIATE_TEST_SUITE_P(Geometry, BadBias, testing::ValuesIn(kGeometry));

const Case<B> kMasks[] = {
    {"no fill", [](B& r) { M(r).clear_fill(); }, "MISSING", "mask.fill"},
    {"unspecified fill", [](B& r) { M(r).set_fill_kind(v1::MASK_FILL_UNSPECIFIED); }, "MISSING", "mask.fill_kind"},
    {"NaN fill", [](B& r) { M(r).set_fill_value(NAN); }, "OUT_OF_RANGE", "mask.fill_value"},
    {"no policy", [](B& r) { M(r).clear_fully_masked_row(); }, "MISSING", "mask.fully_masked_row"},
    {"negative window", [](B& r) { M(r).set_window_left(-1); }, "OUT_OF_RANGE", "mask.window_left"},
    {"flag of 2",
     [](B& r) {
       *M(r).mutable_key_valid() = Flags({1, 3}, {0, 2, 1});
     },
     "OUT_OF_RANGE", "mask.key_valid[1]"},
    {"flags as INT32",
     [](B& r) {
       *M(r).mutable_key_valid() = MakeTensor(DType::kINT32, {1, 3}, std::vector<int32_t>{1, 1, 1});
     },
     "UNSUPPORTED", "mask.key_valid.dtype"},
    {"flags of another length",
     [](B& r) {
       *M(r).mutable_key_valid() = Flags({1, 2}, {1, 1});
     },
     "MISMATCH", "mask.key_valid.shape"},
};
INSTANTIATE_TEST_SUITE_P(Masks, BadBias, testing::ValuesIn(kMasks));

TEST(BadAddBias, Scores) {
  v1::AddBiasRequest request;
  *request.mutable_method() = ValidBias().method();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "scores"));
  *request.mutable_scores() = MakeTensor(DType::kFP32, {2, 3, 3}, std::vector<double>(18));
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "scores.shape"));
  *request.mutable_scores() = MakeTensor(DType::kFP32, {1, 3, 3, 3}, std::vector<double>(27));
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "scores.shape"));
  *request.mutable_scores() = MakeTensor(DType::kFP64, {1, 2, 3, 3}, std::vector<double>(18));
  EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", "scores.dtype"));
  *request.mutable_scores() = MakeTensor(DType::kFP32, {1, 2, 3, 3}, std::vector<double>(18));
  EXPECT_THAT(Call(request), IsOk());
  request.mutable_geometry()->set_key_length(4);
  EXPECT_FALSE(Call(request).ok());
}

class BadEmbedding : public testing::TestWithParam<Case<E>> {};

TEST_P(BadEmbedding, IsRefused) {
  E request = ValidEmbedding();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

void Fairseq(E& r) {
  S(r).set_convention(v1::SINUSOIDAL_CONVENTION_FAIRSEQ);
  S(r).set_padding_idx(1);
}
#define SINUSOIDAL "sinusoidal."
const Case<E> kEmbeddings[] = {
    {"no method", [](E& r) { r.clear_sinusoidal(); }, "MISSING", "method"},
    {"no convention", [](E& r) { S(r).clear_convention(); }, "MISSING", SINUSOIDAL "convention"},
    {"no dim", [](E& r) { S(r).clear_dim(); }, "OUT_OF_RANGE", SINUSOIDAL "dim"},
    {"huge dim", [](E& r) { S(r).set_dim(int64_t{1} << 60); }, "OUT_OF_RANGE", SINUSOIDAL "dim"},
    {"odd dim", [](E& r) { S(r).set_convention(v1::SINUSOIDAL_CONVENTION_HALVES), S(r).set_dim(7); }, "OUT_OF_RANGE",
     SINUSOIDAL "dim"},
    {"dim that divides by zero", [](E& r) { Fairseq(r), S(r).set_dim(3); }, "OUT_OF_RANGE", SINUSOIDAL "dim"},
    {"timescale 0", [](E& r) { S(r).set_max_timescale(0); }, "OUT_OF_RANGE", SINUSOIDAL "max_timescale"},
    {"NaN timescale", [](E& r) { S(r).set_min_timescale(NAN); }, "OUT_OF_RANGE", SINUSOIDAL "min_timescale"},
    {"min_timescale not read",
     [](E& r) { S(r).set_convention(v1::SINUSOIDAL_CONVENTION_HALVES), S(r).set_min_timescale(1); }, "NOT_READ",
     SINUSOIDAL "min_timescale"},
    {"start_index not read", [](E& r) { Fairseq(r), S(r).set_start_index(1); }, "NOT_READ", SINUSOIDAL "start_index"},
    {"start_index too far", [](E& r) { S(r).set_start_index(std::numeric_limits<int64_t>::max()); }, "OUT_OF_RANGE",
     SINUSOIDAL "start_index"},
    {"padding_idx not read", [](E& r) { S(r).set_padding_idx(1); }, "NOT_READ", SINUSOIDAL "padding_idx"},
    {"padding_idx missing", [](E& r) { Fairseq(r), S(r).clear_padding_idx(); }, "MISSING", SINUSOIDAL "padding_idx"},
    {"padding_idx too far", [](E& r) { Fairseq(r), S(r).set_padding_idx(std::numeric_limits<int64_t>::max()); },
     "OUT_OF_RANGE", SINUSOIDAL "padding_idx"},
    {"token_valid not read",
     [](E& r) {
       *S(r).mutable_token_valid() = Flags({1, 4}, {1, 1, 1, 1});
     },
     "NOT_READ", SINUSOIDAL "token_valid"},
    {"token_valid beside positions",
     [](E& r) {
       Fairseq(r), *S(r).mutable_token_valid() = Flags({1, 4}, {1, 1, 1, 1});
     },
     "CONFLICT", "positions"},
    {"token_valid without a batch",
     [](E& r) {
       Fairseq(r), *S(r).mutable_token_valid() = Flags({4}, {1, 1, 1, 1});
     },
     "MISMATCH", SINUSOIDAL "token_valid.shape"},
    {"infinite scale", [](E& r) { S(r).set_scale(INFINITY); }, "OUT_OF_RANGE", SINUSOIDAL "scale"},
    {"no positions", [](E& r) { r.clear_positions(); }, "MISSING", "positions.source"},
    {"no count", [](E& r) { r.clear_count(); }, "MISSING", "count"},
    {"negative count", [](E& r) { r.set_count(-1); }, "OUT_OF_RANGE", "count"},
    {"count that is not the segments'",
     [](E& r) { r.mutable_positions()->mutable_segments()->add_segment()->mutable_line()->set_count(3); }, "MISMATCH",
     "count"},
    {"more tokens than there are numbers",
     [](E& r) {
       r.clear_count();
       for (int n = 0; n < 2; ++n) {
         v1::PositionLine& line = *r.mutable_positions()->mutable_segments()->add_segment()->mutable_line();
         line.set_count(int64_t{1} << 62);
         line.set_step(0);
       }
     },
     "OUT_OF_RANGE", "positions.segments.segment[1].line.count"},
    {"cu_seqlens",
     [](E& r) {
       *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, 4});
     },
     "NOT_READ", "positions.cu_seqlens"},
    {"offsets", [](E& r) { r.mutable_positions()->mutable_offsets()->add_offset(0); }, "NOT_READ", "positions.offsets"},
    {"length rule", [](E& r) { r.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN); },
     "NOT_READ", "positions.scaling_length_rule"},
    {"integers", [](E& r) { r.set_dtype(v1::DATA_TYPE_INT64); }, "UNSUPPORTED", "dtype"},
};
INSTANTIATE_TEST_SUITE_P(Embeddings, BadEmbedding, testing::ValuesIn(kEmbeddings));

}  // namespace
}  // namespace posenc
