// Biases and embeddings that a caller may get wrong: each is refused with its reason and its field.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::bad_bias_test {
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
    {"too few slopes", [](B& r) { *A(r).mutable_given() = Doubles({1}, {1}); }, "MISMATCH", "method.alibi.given.shape"},
    {"exp overflows",
     [](B& r) {
       *A(r).mutable_log_slopes() = Doubles({2}, {1, 89});
     },
     "OUT_OF_RANGE", "method.alibi.log_slopes[1]"},
    {"logs per batch row",
     [](B& r) {
       *A(r).mutable_log_slopes() = Doubles({1, 2}, {1, 1});
     },
     "MISMATCH", "method.alibi.log_slopes.shape"},
    {"a model without ALiBi",
     [](B& r) { r.mutable_method()->mutable_model()->set_config_json(golden::ReadText("configs/llama-2-7b.json")); },
     "UNSUPPORTED", "method.model.config_json"},
};
INSTANTIATE_TEST_SUITE_P(Alibi, BadBias, testing::ValuesIn(kAlibi));

const Case<B> kGeometry[] = {
    {"too many heads", [](B& r) { G(r).set_head_start(1), G(r).set_head_count(2); }, "OUT_OF_RANGE",
     "geometry.head_count"},
    {"NaN position",
     [](B& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0, 1, NAN});
     },
     "OUT_OF_RANGE", "geometry.key_positions[2]"},
};
INSTANTIATE_TEST_SUITE_P(Geometry, BadBias, testing::ValuesIn(kGeometry));

const Case<B> kMasks[] = {
    {"flags as INT32",
     [](B& r) {
       *M(r).mutable_key_valid() = MakeTensor(DType::kINT32, {1, 3}, std::vector<int32_t>{1, 1, 1});
     },
     "UNSUPPORTED", "mask.key_valid.dtype"},
};
INSTANTIATE_TEST_SUITE_P(Masks, BadBias, testing::ValuesIn(kMasks));

v1::BiasMethod& Method(B& r) { return *r.mutable_method(); }
v1::Tensor Weights(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return MakeTensor(DType::kFP32, std::move(shape), std::vector<double>(count, 0.5));
}

// Valid requests of the other methods, which the tests make invalid.
B OfT5() {
  B r = ValidBias();
  Method(r).mutable_t5()->set_bidirectional(true);
  *Method(r).mutable_table() = Weights({32, 2});
  Method(r).set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return r;
}
B OfKerple() {
  B r = ValidBias();
  Method(r).mutable_kerple()->set_kernel(v1::KERPLE_KERNEL_LOG);
  for (double x : {1.0, 2.0}) Method(r).mutable_kerple()->add_a(x), Method(r).mutable_kerple()->add_p(x);
  return r;
}
B OfSandwich() {
  B r = ValidBias();
  Method(r).mutable_sandwich()->set_convention(v1::SANDWICH_CONVENTION_PAPER);
  Method(r).mutable_sandwich()->set_num_heads(2);
  return r;
}
B OfSwin() {
  B r = ValidBias();
  r.clear_geometry();
  Method(r).mutable_swin()->set_window_height(2);
  Method(r).mutable_swin()->set_window_width(3);
  *Method(r).mutable_table() = Weights({15, 2});
  Method(r).set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return r;
}
B OfBeit() {
  B r = OfSwin();
  Method(r).mutable_beit()->set_window_height(2);
  Method(r).mutable_beit()->set_window_width(3);
  Method(r).mutable_beit()->set_table(v1::BEIT_TABLE_PLAIN);
  *Method(r).mutable_table() = Weights({18, 2});
  return r;
}
B OfSwinV2() {
  B r = ValidBias();
  r.clear_geometry();
  v1::SwinV2Bias& swin = *Method(r).mutable_swin_v2();
  swin.set_window_height(2);
  swin.set_window_width(3);
  *swin.mutable_hidden_weight() = Weights({4, 2});
  *swin.mutable_hidden_bias() = Weights({4});
  *swin.mutable_output_weight() = Weights({2, 4});
  return r;
}
B OfFire() {
  B r = ValidBias();
  v1::Fire& fire = *Method(r).mutable_fire();
  fire.set_c(0.1);
  fire.set_threshold(512);
  *fire.mutable_hidden_weight() = Weights({4});
  *fire.mutable_hidden_bias() = Weights({4});
  *fire.mutable_output_weight() = Weights({2, 4});
  *fire.mutable_output_bias() = Weights({2});
  return r;
}

struct MethodCase {
  B (*valid)();
  Case<B> bad;
  friend void PrintTo(const MethodCase& c, std::ostream* out) { *out << c.bad.what; }
};

class BadMethod : public testing::TestWithParam<MethodCase> {};

TEST_P(BadMethod, IsRefused) {
  B request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().bad.change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().bad.reason, GetParam().bad.field));
}

v1::Fire& Fire(B& r) { return *Method(r).mutable_fire(); }
v1::SwinV2Bias& V2(B& r) { return *Method(r).mutable_swin_v2(); }
void Index(B& r) {
  r.clear_mask();
  r.set_form(v1::BIAS_FORM_INDEX);
  r.set_dtype(v1::DATA_TYPE_INT32);
}

const MethodCase kMethods[] = {
    {OfT5,
     {"no table", [](B& r) { Method(r).clear_table(), Method(r).clear_table_layout(); }, "MISSING", "method.table"}},
    {OfT5,
     {"a table of other buckets",
      [](B& r) {
        *Method(r).mutable_table() = Weights({31, 2});
      },
      "MISMATCH", "method.table.shape"}},
    {OfT5,
     {"half a distance",
      [](B& r) {
        *G(r).mutable_query_positions() = Doubles({3}, {0, 1.5, 2});
      },
      "OUT_OF_RANGE", "geometry.query_positions[1]"}},
    {OfT5,
     {"distances of 2^31",
      [](B& r) {
        *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 2147483648});
      },
      "OUT_OF_RANGE", "geometry.query_positions"}},
    {OfT5,
     {"a masked index",
      [](B& r) {
        const v1::Mask mask = r.mask();
        Index(r), *r.mutable_mask() = mask;
      },
      "NOT_READ", "mask"}},
    {OfT5, {"an index of a head", [](B& r) { Index(r), G(r).set_head_start(0); }, "NOT_READ", "geometry.head_start"}},
    {OfKerple, {"an index", [](B& r) { Index(r); }, "CONFLICT", "form"}},
    {OfKerple,
     {"half a distance",
      [](B& r) {
        *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 2.5});
      },
      "OUT_OF_RANGE", "geometry.key_positions[2]"}},
    {OfSandwich,
     {"a distance beyond 2^20",
      [](B& r) {
        *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1048579});
      },
      "OUT_OF_RANGE", "geometry.query_positions"}},
    {OfSwin,
     {"a table of another window", [](B& r) { Method(r).mutable_swin()->set_window_width(2); }, "MISMATCH",
      "method.table.shape"}},
    {OfSwin,
     {"lengths of another window", [](B& r) { G(r).set_query_length(5); }, "MISMATCH", "geometry.query_length"}},
    {OfSwin, {"positions", [](B& r) { G(r).set_query_offset(0); }, "NOT_READ", "geometry.query"}},
    {OfBeit,
     {"Swin's table",
      [](B& r) {
        *Method(r).mutable_table() = Weights({15, 2});
      },
      "MISMATCH", "method.table.shape"}},
    {OfSwinV2,
     {"a window one token high", [](B& r) { V2(r).set_window_height(1); }, "OUT_OF_RANGE",
      "method.swin_v2.window_height"}},
    {OfSwinV2,
     {"too many hidden units", [](B& r) { *V2(r).mutable_hidden_bias() = Weights({4097}); }, "OUT_OF_RANGE",
      "method.swin_v2.hidden_bias"}},
    {OfSwinV2,
     {"output of another layer",
      [](B& r) {
        *V2(r).mutable_output_weight() = Weights({4, 2});
      },
      "MISMATCH", "method.swin_v2.output_weight.shape"}},
    {OfFire, {"zero by zero", [](B& r) { Fire(r).set_epsilon(0), Fire(r).set_c(0); }, "OUT_OF_RANGE", "method.fire.c"}},
    {OfFire,
     {"by a subnormal", [](B& r) { Fire(r).set_epsilon(0), Fire(r).set_c(1e-320); }, "OUT_OF_RANGE", "method.fire.c"}},
    {OfFire,
     {"more biases than heads", [](B& r) { *Fire(r).mutable_output_bias() = Weights({3}); }, "MISMATCH",
      "method.fire.output_bias.shape"}},
};
INSTANTIATE_TEST_SUITE_P(Methods, BadMethod, testing::ValuesIn(kMethods));

// Requests that would take too long are refused before work begins.
TEST(BadMethod, AskingForTooManyValues) {
  const auto too_large = [](const B& request, const Limits& limits, const char* field) {
    EXPECT_THAT(Call(request, limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", field));
  };
  Limits limits;
  limits.max_bias_values = 9;  // 5 distances of 2 heads
  too_large(OfKerple(), limits, "geometry");
  too_large(OfT5(), limits, "geometry");
  limits.max_bias_values = 10;
  EXPECT_THAT(Call(OfKerple(), limits), IsOk());
  EXPECT_THAT(Call(OfT5(), limits), IsOk());
  limits.max_bias_values = 5 * 2 + 3 * 3 * 64 - 1;  // 64 cosines for each of the distances 0, 1, 2
  too_large(OfSandwich(), limits, "geometry");
  ++limits.max_bias_values;
  EXPECT_THAT(Call(OfSandwich(), limits), IsOk());
  limits.max_bias_values = 14;  // less than the 15 displacements
  too_large(OfSwin(), limits, "method.swin.window_height");
  B network = OfSwinV2();
  *V2(network).mutable_hidden_weight() = Weights({512, 2});
  *V2(network).mutable_hidden_bias() = Weights({512});
  *V2(network).mutable_output_weight() = Weights({2, 512});
  limits.max_bias_values = 15 * 512 * 2 / 8 - 1;
  too_large(network, limits, "method.swin_v2.output_weight.shape");
  ++limits.max_bias_values;
  EXPECT_THAT(Call(network, limits), IsOk());
  B alibi = ValidBias();
  limits.max_bias_values = 5;  // 3 batch rows of 2 heads
  *A(alibi).mutable_given() = Doubles({3, 2}, {1, 1, 1, 1, 1, 1});
  too_large(alibi, limits, "method.alibi.given");
  B far = OfT5();
  *G(far).mutable_key_positions() = Doubles({3}, {0, 1, 2147483000});
  too_large(far, {}, "geometry");
}

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

class BadSinusoidal : public testing::TestWithParam<Case<E>> {};

TEST_P(BadSinusoidal, IsRefused) {
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
    {"odd dim", [](E& r) { S(r).set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED), S(r).set_dim(7); },
     "OUT_OF_RANGE", SINUSOIDAL "dim"},
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
    {"more tokens than there are numbers",
     [](E& r) {
       r.clear_count();
       for (int n = 0; n < 2; ++n) {
         v1::PositionLine& line = *r.mutable_positions()->mutable_segments()->add_segment()->mutable_line();
         line.set_count(int64_t{1} << 30);
         line.set_step(0);
       }
     },
     "OUT_OF_RANGE", "positions.segments"},
    {"cu_seqlens",
     [](E& r) {
       *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, 4});
     },
     "NOT_READ", "positions.cu_seqlens"},
};
INSTANTIATE_TEST_SUITE_P(Embeddings, BadSinusoidal, testing::ValuesIn(kEmbeddings));

}  // namespace
}  // namespace posenc::bad_bias_test
