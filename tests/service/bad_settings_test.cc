// Settings that a caller may get wrong, in requests: each is refused with its reason and its field.
#include "tests/service/bad_settings.h"

namespace posenc::bad_settings {
namespace {

TEST_P(BadSettings, AreRefused) {
  v1::GenerateTableRequest request = Valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case kSettings[] = {
    {"no source", [](R& r) { r.clear_rotary(); }, "MISSING", "rotary"},
    {"no frequencies", [](R& r) { S(r).clear_rope_parameters(); }, "MISSING", SETTINGS "frequencies"},
    {"no pairing", [](R& r) { S(r).clear_input_pairing(); }, "MISSING", SETTINGS "input_pairing"},
    {"unknown pairing", [](R& r) { S(r).set_output_pairing(static_cast<v1::Pairing>(5)); }, "UNKNOWN_VALUE",
     SETTINGS "output_pairing"},
    {"no width", [](R& r) { S(r).clear_head_dim(); }, "MISSING", SETTINGS "rotary_dim"},
    {"two widths", [](R& r) { S(r).set_rotary_dim(8); }, "CONFLICT", SETTINGS "rotary_dim"},
    {"head width 0", [](R& r) { S(r).set_head_dim(0); }, "OUT_OF_RANGE", SETTINGS "head_dim"},
    {"negative head width", [](R& r) { S(r).set_head_dim(-8); }, "OUT_OF_RANGE", SETTINGS "head_dim"},
    {"odd head width", [](R& r) { S(r).set_head_dim(7); }, "OUT_OF_RANGE", SETTINGS "head_dim"},
    {"odd rotary width",
     [](R& r) {
       S(r).clear_head_dim();
       S(r).set_rotary_dim(63);
     },
     "OUT_OF_RANGE", SETTINGS "rotary_dim"},
    {"rotary width 0",
     [](R& r) {
       S(r).clear_head_dim();
       S(r).set_rotary_dim(0);
     },
     "OUT_OF_RANGE", SETTINGS "rotary_dim"},
    {"rotary width above the limit",
     [](R& r) {
       S(r).clear_head_dim();
       S(r).set_rotary_dim(65538);
     },
     "OUT_OF_RANGE", SETTINGS "rotary_dim"},
    {"odd partial width",
     [](R& r) {
       S(r).set_head_dim(64);
       P(r).set_partial_rotary_factor(0.33);
     },
     "OUT_OF_RANGE", SETTINGS "rope_parameters.partial_rotary_factor"},
    {"partial factor 0", [](R& r) { P(r).set_partial_rotary_factor(0); }, "OUT_OF_RANGE", ROPE "partial_rotary_factor"},
    {"partial factor above 1", [](R& r) { P(r).set_partial_rotary_factor(1.5); }, "OUT_OF_RANGE",
     ROPE "partial_rotary_factor"},
    {"partial beside rotary_dim",
     [](R& r) {
       S(r).clear_head_dim();
       S(r).set_rotary_dim(8);
       P(r).set_partial_rotary_factor(0.5);
     },
     "CONFLICT", ROPE "partial_rotary_factor"},
    {"no rope_type", [](R& r) { P(r).clear_rope_type(); }, "MISSING", ROPE "rope_type"},
    {"unknown rope_type", [](R& r) { P(r).set_rope_type("mrope"); }, "UNKNOWN_VALUE", ROPE "rope_type"},
    {"theta 0", [](R& r) { P(r).set_rope_theta(0); }, "OUT_OF_RANGE", ROPE "rope_theta"},
    {"negative theta", [](R& r) { P(r).set_rope_theta(-1e4); }, "OUT_OF_RANGE", ROPE "rope_theta"},
    {"NaN theta", [](R& r) { P(r).set_rope_theta(NAN); }, "OUT_OF_RANGE", ROPE "rope_theta"},
    {"infinite theta", [](R& r) { P(r).set_rope_theta(INFINITY); }, "OUT_OF_RANGE", ROPE "rope_theta"},
    {"theta 1 under yarn", [](R& r) { P(r).set_rope_theta(1); }, "OUT_OF_RANGE", ROPE "rope_theta"},
    {"a theta that overflows",
     [](R& r) {
       As(r, "default");
       P(r).set_rope_theta(1e-300);
       r.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
     },
     "OUT_OF_RANGE", SETTINGS "rope_parameters"},
    {"Lmax 0", [](R& r) { S(r).set_max_position_embeddings(0); }, "OUT_OF_RANGE", SETTINGS "max_position_embeddings"},
    {"NaN Lmax", [](R& r) { S(r).set_max_position_embeddings(NAN); }, "OUT_OF_RANGE",
     SETTINGS "max_position_embeddings"},
    {"Lmax not read",
     [](R& r) {
       Llama3(r);
       S(r).set_max_position_embeddings(4096);
     },
     "NOT_READ", SETTINGS "max_position_embeddings"},
};
INSTANTIATE_TEST_SUITE_P(Settings, BadSettings, testing::ValuesIn(kSettings));

TEST(BadCalls, InverseOfAScalingOf0) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Valid().rotary();
  request.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->set_attention_factor(0);
  request.mutable_positions()->set_offset(0);
  request.set_layout(v1::LAYOUT_THD);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 8}, std::vector<double>(8));
  EXPECT_THAT(Call(request), IsOk());
  request.set_direction(v1::DIRECTION_INVERSE);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "direction"));
}

// GenerateTable accepts the rule GIVEN with one length.
TEST(BadCalls, TableOfAGivenLength) {
  v1::GenerateTableRequest request = Valid();
  Dynamic(request);
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
  request.mutable_positions()->add_seq_len(9000);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->info().sequences(0).branch(), "scaled");
  request.mutable_positions()->add_seq_len(1);
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "positions.seq_len"));
}

TEST(BadCalls, Explain) {
  v1::ExplainRequest request;
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "subject"));
  v1::GenerateTableRequest dynamic = Valid();
  Dynamic(dynamic);
  *request.mutable_rotary() = dynamic.rotary().settings();
  EXPECT_THAT(Call(request), IsOk());
  request.add_seq_len(0);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "seq_len[0]"));
}

// Fields of the request beside the model or the bias do not belong to its path.
TEST(BadCalls, FieldsBesideTheSubject) {
  v1::ExplainRequest explain;
  explain.mutable_model()->set_config_json(
      R"({"model_type": "llama", "head_dim": 8, "max_position_embeddings": 64,
          "rope_scaling": {"rope_type": "dynamic", "factor": 2}})");
  explain.add_seq_len(-1);
  EXPECT_THAT(Call(explain), IsInvalid("OUT_OF_RANGE", "seq_len[0]"));
  explain.clear_seq_len();
  v1::GenerateTableRequest table = Valid();
  *table.mutable_rotary()->mutable_model() = explain.model();
  explain.mutable_precision()->mutable_axes();
  *table.mutable_precision() = explain.precision();
  EXPECT_THAT(Call(explain), IsInvalid("MISSING", "precision.axes.frequencies"));
  EXPECT_THAT(Call(table), IsInvalid("MISSING", "precision.axes.frequencies"));
  explain.mutable_bias()->mutable_nope()->set_num_heads(1);
  EXPECT_THAT(Call(explain), IsInvalid("MISSING", "precision.axes.frequencies"));
  explain.clear_precision();
  explain.mutable_bias()->mutable_t5();
  EXPECT_THAT(Call(explain), IsInvalid("MISSING", "bias.t5.bidirectional"));
}

}  // namespace
}  // namespace posenc::bad_settings
