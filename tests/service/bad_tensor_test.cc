// Tensors, positions and sizes that a caller may get wrong: each is refused with its reason and its field, at once.
#include <gtest/gtest.h>

#include <functional>

#include "tests/service/call.h"

namespace posenc::bad_tensor_test {
namespace {

constexpr int64_t kMany = int64_t{1} << 22, kHuge = (int64_t{1} << 31) - 1;  // max_dimension

v1::ApplyRotaryRequest Valid() {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("default");
  settings->set_rotary_dim(4);
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_positions()->set_offset(0);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {2, 3, 1, 4}, std::vector<double>(24));
  *request.mutable_k()->mutable_tensor() = MakeTensor(DType::kFP32, {2, 3, 1, 4}, std::vector<double>(24));
  return request;
}

// A tensor without its bytes.
v1::Tensor Header(DType dtype, std::vector<int64_t> shape) {
  return MakeTensor(dtype, std::move(shape), std::vector<double>{});
}

void Dynamic(v1::ApplyRotaryRequest& r) {
  auto* settings = r.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("dynamic");
  settings->mutable_rope_parameters()->set_factor(2);
  settings->set_max_position_embeddings(2048);
}

void Packed(v1::ApplyRotaryRequest& r, const std::vector<int32_t>& bounds) {
  r.set_layout(v1::LAYOUT_THD);
  for (auto* operand : {r.mutable_q(), r.mutable_k()}) {
    *operand->mutable_tensor() = MakeTensor(DType::kFP32, {6, 1, 4}, std::vector<double>(24));
  }
  const auto size = static_cast<int64_t>(bounds.size());
  *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {size}, bounds);
}

void Ids(v1::ApplyRotaryRequest& r, std::vector<int64_t> shape, const std::vector<double>& ids) {
  *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, std::move(shape), ids);
}

struct Case {
  const char* what;
  std::function<void(v1::ApplyRotaryRequest&)> change;
  const char* reason;
  const char* field;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class BadTensor : public testing::TestWithParam<Case> {};

TEST_P(BadTensor, IsRefused) {
  v1::ApplyRotaryRequest request = Valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  const auto response = Call(request);
  EXPECT_THAT(response, IsInvalid(GetParam().reason, GetParam().field));
  EXPECT_THAT(std::string(response.status().message()), testing::HasSubstr(GetParam().field));
}

using R = v1::ApplyRotaryRequest;
const Case kTensors[] = {
    {"unknown dtype", [](R& r) { r.mutable_q()->mutable_tensor()->set_dtype(static_cast<v1::DataType>(99)); },
     "UNKNOWN_VALUE", "q.tensor.dtype"},
    {"rank 9",
     [](R& r) {
       *r.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1});
     },
     "OUT_OF_RANGE", "q.tensor.shape"},
    {"too few bytes", [](R& r) { r.mutable_q()->mutable_tensor()->mutable_data()->pop_back(); }, "MISMATCH",
     "q.tensor.data"},
    {"bytes of an empty shape", [](R& r) { r.mutable_q()->mutable_tensor()->set_shape(0, 0); }, "MISMATCH",
     "q.tensor.data"},
    {"product overflows",
     [](R& r) {
       *r.mutable_q()->mutable_tensor() = Header(DType::kFP32, {kHuge, kHuge, 1, 4});
     },
     "OUT_OF_RANGE", "q.tensor.shape"},
    {"dimensions beside a 0 that no request could have without it",
     [](R& r) {
       *r.mutable_q()->mutable_tensor() = Header(DType::kFP32, {0, 1 << 24, 2, 4});
     },
     "OUT_OF_RANGE", "q.tensor.shape"},
    {"more axes than any position has",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = Header(DType::kINT32, {0, 65});
       r.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
     },
     "OUT_OF_RANGE", "positions.ids.shape[1]"},
    {"product overflows beside a 0",
     [](R& r) {
       *r.mutable_q()->mutable_tensor() = Header(DType::kFP32, {kHuge, kHuge, 0, 4});
     },
     "OUT_OF_RANGE", "q.tensor.shape"},
    {"q and k of different length",
     [](R& r) {
       *r.mutable_k()->mutable_tensor() = MakeTensor(DType::kFP32, {2, 2, 1, 4}, std::vector<double>(16));
     },
     "MISMATCH", "k.tensor.shape"},
    {"unknown layout", [](R& r) { r.set_layout(static_cast<v1::Layout>(7)); }, "UNKNOWN_VALUE", "layout"},
    {"unknown direction", [](R& r) { r.set_direction(static_cast<v1::Direction>(7)); }, "UNKNOWN_VALUE", "direction"},
};
INSTANTIATE_TEST_SUITE_P(Tensors, BadTensor, testing::ValuesIn(kTensors));

const Case kPositions[] = {
    {"ids of the wrong length",
     [](R& r) {
       Ids(r, {2}, {0, 1});
     },
     "MISMATCH", "positions.ids.shape"},
    {"ids of the wrong batch",
     [](R& r) {
       Ids(r, {1, 3}, {0, 1, 2});
     },
     "MISMATCH", "positions.ids.shape"},
    {"ids of type BF16",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kBF16, {3}, {0, 1, 2});
     },
     "UNSUPPORTED", "positions.ids.dtype"},
    {"cu_seqlens beside BSHD",
     [](R& r) {
       *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, 3});
     },
     "NOT_READ", "positions.cu_seqlens"},
    {"cu_seqlens decreasing",
     [](R& r) {
       Packed(r, {0, 4, 3, 6});
     },
     "OUT_OF_RANGE", "positions.cu_seqlens[2]"},
    {"cu_seqlens of too few tokens",
     [](R& r) {
       Packed(r, {0, 4});
     },
     "MISMATCH", "positions.cu_seqlens[1]"},
    {"given, but not",
     [](R& r) {
       Dynamic(r);
       r.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
     },
     "MISMATCH", "positions.seq_len"},
    {"unknown length rule",
     [](R& r) { r.mutable_positions()->set_scaling_length_rule(static_cast<v1::ScalingLengthRule>(9)); },
     "UNKNOWN_VALUE", "positions.scaling_length_rule"},
};
INSTANTIATE_TEST_SUITE_P(Positions, BadTensor, testing::ValuesIn(kPositions));

// Empty tensors are legal, also with many rows of nothing.
TEST(EmptyTensors, AreAnsweredEmpty) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {0, 3, 1, 4}, {2, 0, 1, 4}, {2, 3, 0, 4}, {kMany, 0, 1, 4}, {0, kMany, 1, 4}, {kMany, 3, 0, 4}}) {
    SCOPED_TRACE(testing::PrintToString(shape));
    v1::ApplyRotaryRequest request = Valid();
    request.clear_k();
    *request.mutable_q()->mutable_tensor() = Header(DType::kBF16, shape);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ShapeOf(response->q()), shape);
    EXPECT_EQ(response->q().data(), "");
    EXPECT_TRUE(response->info().rotated());
  }
}

TEST(EmptyTensors, OneOfTwoMayBeEmpty) {
  v1::ApplyRotaryRequest request = Valid();
  *request.mutable_k()->mutable_tensor() = Header(DType::kFP32, {2, 3, 0, 4});
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->q().data().size(), 96u);
  EXPECT_EQ(response->k().data().size(), 0u);
}

TEST(EmptyTensors, OtherCalls) {
  v1::GenerateEmbeddingRequest embedding;
  embedding.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_FAIRSEQ);
  embedding.mutable_sinusoidal()->set_dim(8);
  embedding.mutable_sinusoidal()->set_padding_idx(1);
  *embedding.mutable_sinusoidal()->mutable_token_valid() = Header(DType::kBOOL, {kMany, 0});
  embedding.set_dtype(v1::DATA_TYPE_FP32);
  EXPECT_THAT(Call(embedding), IsOk());

  v1::GenerateBiasRequest bias;
  bias.mutable_method()->mutable_alibi()->set_num_heads(2);
  bias.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_GEOMETRIC);
  bias.mutable_method()->mutable_alibi()->set_form(v1::ALIBI_FORM_MPT);
  bias.mutable_geometry()->set_query_length(kHuge);
  bias.mutable_geometry()->set_key_length(0);
  bias.mutable_geometry()->set_query_offset(0);
  bias.set_form(v1::BIAS_FORM_DENSE);
  bias.set_dtype(v1::DATA_TYPE_FP32);
  EXPECT_THAT(Call(bias), IsOk());
  // The compact answer of a form that depends on the key alone does not grow with the queries.
  bias.mutable_geometry()->set_key_length(3);
  bias.set_form(v1::BIAS_FORM_COMPACT);
  const auto response = Call(bias);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(ShapeOf(response->bias()), (std::vector<int64_t>{2, 1, 3}));
}

TEST(TooLarge, AnswersAboveTheLimit) {
  Limits limits;
  limits.max_output_bytes = 191;
  EXPECT_THAT(Call(Valid(), limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
  limits.max_output_bytes = 192;
  EXPECT_THAT(Call(Valid(), limits), IsOk());

  v1::GenerateTableRequest table;
  *table.mutable_rotary() = Valid().rotary();
  table.mutable_positions()->set_offset(0);
  table.set_dtype(v1::DATA_TYPE_FP32);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  table.set_count(kHuge);
  EXPECT_THAT(Call(table), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));

  v1::GenerateBiasRequest bias;
  bias.mutable_method()->mutable_alibi()->set_num_heads(2);
  bias.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_GEOMETRIC);
  bias.mutable_method()->mutable_alibi()->set_form(v1::ALIBI_FORM_SYMMETRIC);
  bias.mutable_geometry()->set_query_length(1 << 20);
  bias.mutable_geometry()->set_key_length(1 << 20);
  bias.set_form(v1::BIAS_FORM_DENSE);
  bias.set_dtype(v1::DATA_TYPE_FP32);
  EXPECT_THAT(Call(bias), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
}

TEST(TooLarge, SequencesAndTheirFrequencies) {
  v1::ApplyRotaryRequest request = Valid();
  Dynamic(request);
  Packed(request, {0, 1, 3, 6});
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_PER_SEQUENCE);
  request.mutable_positions()->set_offset(5000);
  EXPECT_THAT(Call(request), IsOk());
  Limits limits;
  limits.max_sequences = 2;
  EXPECT_THAT(Call(request, limits),
              FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "positions.cu_seqlens"));
  limits = {};
  limits.max_plan_values = 5;  // 3 lengths of 2 frequencies
  EXPECT_THAT(Call(request, limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "sequences"));
}

}  // namespace
}  // namespace posenc::bad_tensor_test
