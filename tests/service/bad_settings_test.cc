// Settings, tables and positions that a caller may get wrong, beside those of one field, which
// tests/integration/test_field_values.py sweeps: each is refused with its reason and its field.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/service/call.h"

namespace posenc::bad_settings_test {
namespace {

// A yarn table of one row, so that every kind of field is read.
v1::GenerateTableRequest Valid() {
  v1::GenerateTableRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  auto* p = settings->mutable_rope_parameters();
  p->set_rope_type("yarn");
  p->set_factor(4);
  p->set_original_max_position_embeddings(4096);
  settings->set_head_dim(8);
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->set_offset(0);
  request.set_count(1);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

using R = v1::GenerateTableRequest;
v1::RotarySettings& S(R& r) { return *r.mutable_rotary()->mutable_settings(); }
v1::RopeParameters& P(R& r) { return *S(r).mutable_rope_parameters(); }

// Sets another rope_type, without yarn's fields.
void As(R& r, const char* rope_type) {
  S(r).clear_rope_parameters();
  P(r).set_rope_type(rope_type);
}
void Llama3(R& r) {
  As(r, "llama3");
  P(r).set_factor(8);
  P(r).set_original_max_position_embeddings(8192);
  P(r).set_low_freq_factor(1);
  P(r).set_high_freq_factor(4);
}
// The width is 8, as everywhere here: four pairs.
void Mrope(R& r, std::vector<int64_t> sections, v1::MropeOrder order = v1::MROPE_ORDER_CONTIGUOUS) {
  As(r, "default");
  P(r).mutable_mrope_section()->Assign(sections.begin(), sections.end());
  P(r).set_mrope_order(order);
}
void Dynamic(R& r) {
  As(r, "dynamic");
  P(r).set_factor(2);
  S(r).set_max_position_embeddings(2048);
}

struct Case {
  const char* what;
  std::function<void(R&)> change;
  const char* reason;
  const char* field;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }
};

class BadSettings : public testing::TestWithParam<Case> {};

// Field prefixes in errors.
#define SETTINGS "rotary.settings."
#define ROPE SETTINGS "rope_parameters."

TEST_P(BadSettings, AreRefused) {
  v1::GenerateTableRequest request = Valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case kSettings[] = {
    {"unknown pairing", [](R& r) { S(r).set_output_pairing(static_cast<v1::Pairing>(5)); }, "UNKNOWN_VALUE",
     SETTINGS "output_pairing"},
    {"odd partial width",
     [](R& r) {
       S(r).set_head_dim(64);
       P(r).set_partial_rotary_factor(0.33);
     },
     "OUT_OF_RANGE", SETTINGS "rope_parameters.partial_rotary_factor"},
    {"theta 1 under yarn", [](R& r) { P(r).set_rope_theta(1); }, "OUT_OF_RANGE", ROPE "rope_theta"},
};
INSTANTIATE_TEST_SUITE_P(Settings, BadSettings, testing::ValuesIn(kSettings));

const Case kScalings[] = {
    {"unknown branch", [](R& r) { P(r).set_longrope_branch(static_cast<v1::LongropeBranch>(9)); }, "UNKNOWN_VALUE",
     ROPE "longrope_branch"},
    {"beta_fast below beta_slow", [](R& r) { P(r).set_beta_slow(40); }, "OUT_OF_RANGE", ROPE "beta_fast"},
    {"dynamic of width 2",
     [](R& r) {
       Dynamic(r);
       S(r).set_head_dim(2);
     },
     "OUT_OF_RANGE", ROPE "rotary_dim"},
    {"llama3 with low above high",
     [](R& r) {
       Llama3(r);
       P(r).set_low_freq_factor(5);
     },
     "OUT_OF_RANGE", ROPE "high_freq_factor"},
};
INSTANTIATE_TEST_SUITE_P(Scalings, BadSettings, testing::ValuesIn(kScalings));

const Case kMoreScalings[] = {
    {"unknown order", [](R& r) { Mrope(r, {4}, static_cast<v1::MropeOrder>(9)); }, "UNKNOWN_VALUE", ROPE "mrope_order"},
    {"sections of too many axes", [](R& r) { Mrope(r, std::vector<int64_t>(65)); }, "OUT_OF_RANGE",
     ROPE "mrope_section"},
    {"sections of too few pairs",
     [](R& r) {
       Mrope(r, {1, 1, 1});
     },
     "MISMATCH", ROPE "mrope_section"},
    {"sections of too many pairs",
     [](R& r) {
       Mrope(r, {2, 1, 2});
     },
     "OUT_OF_RANGE", ROPE "mrope_section[2]"},
    {"a negative section",
     [](R& r) {
       Mrope(r, {5, -1});
     },
     "OUT_OF_RANGE", ROPE "mrope_section[0]"},
    {"two sections interleaved",
     [](R& r) {
       Mrope(r, {2, 2}, v1::MROPE_ORDER_INTERLEAVED);
     },
     "MISMATCH", ROPE "mrope_section"},
    {"more than every third pair",
     [](R& r) {
       Mrope(r, {2, 2, 0}, v1::MROPE_ORDER_INTERLEAVED);
     },
     "OUT_OF_RANGE", ROPE "mrope_section[1]"},
    {"ERNIE's h and w unequal",
     [](R& r) {
       Mrope(r, {2, 1, 1}, v1::MROPE_ORDER_ERNIE);
     },
     "MISMATCH", ROPE "mrope_section[1]"},
};
INSTANTIATE_TEST_SUITE_P(MoreScalings, BadSettings, testing::ValuesIn(kMoreScalings));

void Given(R& r, std::vector<double> inv_freq) {
  S(r).mutable_given_frequencies()->mutable_inv_freq()->Assign(inv_freq.begin(), inv_freq.end());
}
v1::AxialAxis& Axis(R& r, int64_t dim) {
  auto* axis = S(r).mutable_axial()->add_axes();
  axis->set_dim(dim);
  return *axis;
}
const Case kFrequencies[] = {
    {"axial of too many axes",
     [](R& r) {
       for (int n = 0; n < 65; ++n) Axis(r, 2);
     },
     "OUT_OF_RANGE", SETTINGS "axial.axes"},
    {"axes of another width", [](R& r) { Axis(r, 4); }, "MISMATCH", SETTINGS "axial.axes"},
    {"axes by turns of two widths",
     [](R& r) {
       Axis(r, 4);
       Axis(r, 12);
       S(r).mutable_axial()->set_alternating(true);
     },
     "MISMATCH", SETTINGS "axial.axes[1].dim"},
    {"given: too many axes",
     [](R& r) {
       Given(r, std::vector<double>(65, 1));
       for (int n = 0; n < 65; ++n) S(r).mutable_given_frequencies()->add_axis(n);
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.axis[64]"},
};
INSTANTIATE_TEST_SUITE_P(Frequencies, BadSettings, testing::ValuesIn(kFrequencies));

const Case kTables[] = {
    {"cu_seqlens",
     [](R& r) {
       *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, 1});
     },
     "NOT_READ", "positions.cu_seqlens"},
    {"a grid of another number of axes",
     [](R& r) {
       r.clear_count();
       auto* grid = r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
       for (int n = 0; n < 2; ++n) grid->add_size(1);
     },
     "MISMATCH", "positions.segments.segment[0].grid.size"},
};
INSTANTIATE_TEST_SUITE_P(Tables, BadSettings, testing::ValuesIn(kTables));

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
}  // namespace posenc::bad_settings_test
