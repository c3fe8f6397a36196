// Settings that a caller may get wrong, through the requests: each refused with its reason and its field.
#include <gtest/gtest.h>

#include <functional>

#include "tests/reference/golden.h"
#include "tests/unit/call.h"

namespace posenc {
namespace {

// A yarn table of one row: every kind of field is read.
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

// Another rope_type with nothing of yarn's.
void As(R& r, const char* rope_type) {
  S(r).clear_rope_parameters();
  P(r).set_rope_type(rope_type);
}
void Given(R& r, std::vector<double> inv_freq) {
  S(r).mutable_given_frequencies()->mutable_inv_freq()->Assign(inv_freq.begin(), inv_freq.end());
}
void Llama3(R& r) {
  As(r, "llama3");
  P(r).set_factor(8);
  P(r).set_original_max_position_embeddings(8192);
  P(r).set_low_freq_factor(1);
  P(r).set_high_freq_factor(4);
}
void Longrope(R& r) {
  As(r, "longrope");
  P(r).set_factor(4);
  P(r).set_original_max_position_embeddings(4096);
  for (int i = 0; i < 4; ++i) P(r).add_short_factor(1), P(r).add_long_factor(2);
  P(r).set_longrope_branch(v1::LONGROPE_BRANCH_LONG);
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
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class BadSettings : public testing::TestWithParam<Case> {};

TEST_P(BadSettings, AreRefused) {
  v1::GenerateTableRequest request = Valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

#define SETTINGS "rotary.settings."
#define ROPE SETTINGS "rope_parameters."
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
     "OUT_OF_RANGE", SETTINGS "head_dim * partial_rotary_factor"},
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
     "OUT_OF_RANGE", "inv_freq[1]"},
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

const Case kScalings[] = {
    {"default with a factor",
     [](R& r) {
       As(r, "default");
       P(r).set_factor(2);
     },
     "NOT_READ", ROPE "factor"},
    {"linear with beta_fast",
     [](R& r) {
       As(r, "linear");
       P(r).set_factor(2);
       P(r).set_beta_fast(32);
     },
     "NOT_READ", ROPE "beta_fast"},
    {"linear with a truncate",
     [](R& r) {
       As(r, "linear");
       P(r).set_factor(2);
       P(r).set_truncate(true);
     },
     "NOT_READ", ROPE "truncate"},
    {"yarn with a list", [](R& r) { P(r).add_short_factor(1); }, "NOT_READ", ROPE "short_factor"},
    {"yarn with a branch", [](R& r) { P(r).set_longrope_branch(v1::LONGROPE_BRANCH_LONG); }, "NOT_READ",
     ROPE "longrope_branch"},
    {"unknown branch", [](R& r) { P(r).set_longrope_branch(static_cast<v1::LongropeBranch>(9)); }, "UNKNOWN_VALUE",
     ROPE "longrope_branch"},
    {"linear without a factor", [](R& r) { As(r, "linear"); }, "MISSING", ROPE "factor"},
    {"linear by 0",
     [](R& r) {
       As(r, "linear");
       P(r).set_factor(0);
     },
     "OUT_OF_RANGE", ROPE "factor"},
    {"yarn without a factor", [](R& r) { P(r).clear_factor(); }, "MISSING", ROPE "factor"},
    {"yarn by -2", [](R& r) { P(r).set_factor(-2); }, "OUT_OF_RANGE", ROPE "factor"},
    {"yarn by NaN", [](R& r) { P(r).set_factor(NAN); }, "OUT_OF_RANGE", ROPE "factor"},
    {"yarn below 1", [](R& r) { P(r).set_factor(0.5); }, "OUT_OF_RANGE", ROPE "factor"},
    {"yarn without L0", [](R& r) { P(r).clear_original_max_position_embeddings(); }, "MISSING",
     ROPE "original_max_position_embeddings"},
    {"L0 0", [](R& r) { P(r).set_original_max_position_embeddings(0); }, "OUT_OF_RANGE",
     ROPE "original_max_position_embeddings"},
    {"attention_factor -1", [](R& r) { P(r).set_attention_factor(-1); }, "OUT_OF_RANGE", ROPE "attention_factor"},
    {"beta_slow 0", [](R& r) { P(r).set_beta_slow(0); }, "OUT_OF_RANGE", ROPE "beta_slow"},
    {"beta_fast below beta_slow", [](R& r) { P(r).set_beta_slow(40); }, "OUT_OF_RANGE", ROPE "beta_fast"},
    {"negative mscale", [](R& r) { P(r).set_mscale(-1); }, "OUT_OF_RANGE", ROPE "mscale"},
    {"infinite mscale_all_dim", [](R& r) { P(r).set_mscale_all_dim(INFINITY); }, "OUT_OF_RANGE", ROPE "mscale_all_dim"},
    {"dynamic of width 2",
     [](R& r) {
       Dynamic(r);
       S(r).set_head_dim(2);
     },
     "OUT_OF_RANGE", ROPE "rotary_dim"},
    {"dynamic without Lmax",
     [](R& r) {
       Dynamic(r);
       S(r).clear_max_position_embeddings();
     },
     "MISSING", ROPE "max_position_embeddings"},
    {"llama3 without high",
     [](R& r) {
       Llama3(r);
       P(r).clear_high_freq_factor();
     },
     "MISSING", ROPE "high_freq_factor"},
    {"llama3 with low above high",
     [](R& r) {
       Llama3(r);
       P(r).set_low_freq_factor(5);
     },
     "OUT_OF_RANGE", ROPE "high_freq_factor"},
    {"longrope lists too short",
     [](R& r) {
       Longrope(r);
       P(r).mutable_long_factor()->RemoveLast();
     },
     "MISMATCH", ROPE "long_factor"},
    {"longrope list with a 0",
     [](R& r) {
       Longrope(r);
       P(r).set_short_factor(2, 0);
     },
     "OUT_OF_RANGE", ROPE "short_factor[2]"},
    {"longrope list with a NaN",
     [](R& r) {
       Longrope(r);
       P(r).set_long_factor(1, NAN);
     },
     "OUT_OF_RANGE", ROPE "long_factor[1]"},
    {"longrope without a factor",
     [](R& r) {
       Longrope(r);
       P(r).clear_factor();
     },
     "MISSING", ROPE "factor"},
    {"longrope from a length of 1",
     [](R& r) {
       Longrope(r);
       P(r).set_original_max_position_embeddings(1);
     },
     "OUT_OF_RANGE", ROPE "original_max_position_embeddings"},
    {"given: another count",
     [](R& r) {
       Given(r, {1, 2});
     },
     "MISMATCH", SETTINGS "given_frequencies.inv_freq"},
    {"given: none",
     [](R& r) {
       S(r).clear_head_dim();
       Given(r, {});
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.inv_freq"},
    {"given: NaN",
     [](R& r) {
       Given(r, {1, NAN, 1, 1});
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.inv_freq[1]"},
    {"given: negative scaling",
     [](R& r) {
       Given(r, {1, 1, 1, 1});
       S(r).mutable_given_frequencies()->set_attention_scaling(-1);
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.attention_scaling"},
};
INSTANTIATE_TEST_SUITE_P(Scalings, BadSettings, testing::ValuesIn(kScalings));

// Width 8, as all here: four pairs.
void Typed(R& r, const char* rope_type, double factor) {
  As(r, rope_type);
  P(r).set_factor(factor);
}
void Mrope(R& r, std::vector<int64_t> sections, v1::MropeOrder order = v1::MROPE_ORDER_CONTIGUOUS) {
  As(r, "default");
  P(r).mutable_mrope_section()->Assign(sections.begin(), sections.end());
  P(r).set_mrope_order(order);
}
const Case kMoreScalings[] = {
    {"ntk without a factor", [](R& r) { As(r, "ntk"); }, "MISSING", ROPE "factor"},
    {"ntk below 1", [](R& r) { Typed(r, "ntk", 0.5); }, "OUT_OF_RANGE", ROPE "factor"},
    {"linear with mixed_b",
     [](R& r) {
       Typed(r, "linear", 2);
       P(r).set_mixed_b(1);
     },
     "NOT_READ", ROPE "mixed_b"},
    {"linear_positions by 0", [](R& r) { Typed(r, "linear_positions", 0); }, "OUT_OF_RANGE", ROPE "factor"},
    {"deepseek_yarn without L0", [](R& r) { Typed(r, "deepseek_yarn", 40); }, "MISSING",
     ROPE "original_max_position_embeddings"},
    {"deepseek_yarn with an attention_factor",
     [](R& r) {
       P(r).set_rope_type("deepseek_yarn");
       P(r).set_attention_factor(1);
     },
     "NOT_READ", ROPE "attention_factor"},
    {"ggml_yarn with a truncate",
     [](R& r) {
       P(r).set_rope_type("ggml_yarn");
       P(r).set_truncate(false);
     },
     "NOT_READ", ROPE "truncate"},
    {"ggml_yarn without L0", [](R& r) { Typed(r, "ggml_yarn", 4); }, "MISSING",
     ROPE "original_max_position_embeddings"},
    {"ggml_yarn with three freq_factors",
     [](R& r) {
       P(r).set_rope_type("ggml_yarn");
       for (int n = 0; n < 3; ++n) P(r).add_freq_factors(1);
     },
     "MISMATCH", ROPE "freq_factors"},
    {"ggml_yarn with a freq_factor of 0",
     [](R& r) {
       P(r).set_rope_type("ggml_yarn");
       for (int n = 0; n < 4; ++n) P(r).add_freq_factors(n);
     },
     "OUT_OF_RANGE", ROPE "freq_factors[0]"},
    {"ggml_yarn with a negative ext_factor",
     [](R& r) {
       P(r).set_rope_type("ggml_yarn");
       P(r).set_ext_factor(-1);
     },
     "OUT_OF_RANGE", ROPE "ext_factor"},
    {"proportional by 0", [](R& r) { Typed(r, "proportional", 0); }, "OUT_OF_RANGE", ROPE "factor"},
    {"proportional of more than all",
     [](R& r) {
       As(r, "proportional");
       P(r).set_partial_rotary_factor(1.5);
     },
     "OUT_OF_RANGE", ROPE "partial_rotary_factor"},
    {"pixel with a theta",
     [](R& r) {
       As(r, "pixel");
       P(r).set_rope_theta(1e4);
     },
     "NOT_READ", ROPE "rope_theta"},
    {"pixel of max_freq 0",
     [](R& r) {
       As(r, "pixel");
       P(r).set_max_freq(0);
     },
     "OUT_OF_RANGE", ROPE "max_freq"},
    {"constant with a frequency_dim",
     [](R& r) {
       As(r, "constant");
       P(r).set_frequency_dim(8);
     },
     "NOT_READ", ROPE "frequency_dim"},
    {"frequency_dim 0", [](R& r) { P(r).set_frequency_dim(0); }, "OUT_OF_RANGE", ROPE "frequency_dim"},
    {"frequency_dim NaN", [](R& r) { P(r).set_frequency_dim(NAN); }, "OUT_OF_RANGE", ROPE "frequency_dim"},
    {"ntk_alpha of frequency_dim 2",
     [](R& r) {
       As(r, "ntk_alpha");
       P(r).set_alpha(2);
       P(r).set_frequency_dim(2);
     },
     "OUT_OF_RANGE", ROPE "frequency_dim"},
    {"sections without an order", [](R& r) { P(r).add_mrope_section(4); }, "MISSING", ROPE "mrope_order"},
    {"an order without sections", [](R& r) { P(r).set_mrope_order(v1::MROPE_ORDER_ERNIE); }, "MISSING",
     ROPE "mrope_section"},
    {"unknown order", [](R& r) { Mrope(r, {4}, static_cast<v1::MropeOrder>(9)); }, "UNKNOWN_VALUE", ROPE "mrope_order"},
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

v1::AxialAxis& Axis(R& r, int64_t dim) {
  auto* axis = S(r).mutable_axial()->add_axes();
  axis->set_dim(dim);
  return *axis;
}
const Case kOtherKinds[] = {
    {"axial without axes", [](R& r) { S(r).mutable_axial(); }, "MISSING", SETTINGS "axial.axes"},
    {"an odd axis",
     [](R& r) {
       Axis(r, 4);
       Axis(r, 3);
     },
     "OUT_OF_RANGE", SETTINGS "axial.axes[1].dim"},
    {"an axis of nothing", [](R& r) { Axis(r, 0); }, "OUT_OF_RANGE", SETTINGS "axial.axes[0].dim"},
    {"axes of too much together",
     [](R& r) {
       Axis(r, 65536);
       Axis(r, 2);
     },
     "OUT_OF_RANGE", SETTINGS "axial.axes[1].dim"},
    {"axes of another width", [](R& r) { Axis(r, 4); }, "MISMATCH", SETTINGS "axial.axes"},
    {"an axis's theta", [](R& r) { Axis(r, 8).set_rope_theta(0); }, "OUT_OF_RANGE",
     SETTINGS "axial.axes[0].rope_theta"},
    {"an axis's start", [](R& r) { Axis(r, 8).set_frequency_start(NAN); }, "OUT_OF_RANGE",
     SETTINGS "axial.axes[0].frequency_start"},
    {"axial with Lmax",
     [](R& r) {
       Axis(r, 8);
       S(r).set_max_position_embeddings(9);
     },
     "NOT_READ", SETTINGS "max_position_embeddings"},
    {"given: an axis too few",
     [](R& r) {
       Given(r, {1, 1, 1, 1});
       for (int n = 0; n < 3; ++n) S(r).mutable_given_frequencies()->add_axis(0);
     },
     "MISMATCH", SETTINGS "given_frequencies.axis"},
    {"given: an axis out of range",
     [](R& r) {
       Given(r, {1, 1, 1, 1});
       for (int n = 0; n < 4; ++n) S(r).mutable_given_frequencies()->add_axis(2 * n);
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.axis[2]"},
    {"xpos without a centre", [](R& r) { S(r).mutable_xpos(); }, "MISSING", SETTINGS "xpos.centre"},
    {"xpos of an infinite centre", [](R& r) { S(r).mutable_xpos()->set_centre(INFINITY); }, "OUT_OF_RANGE",
     SETTINGS "xpos.centre"},
    {"xpos of base 0",
     [](R& r) {
       S(r).mutable_xpos()->set_centre(1);
       S(r).mutable_xpos()->set_scale_base(0);
     },
     "OUT_OF_RANGE", SETTINGS "xpos.scale_base"},
    {"xpos of several axes",
     [](R& r) {
       Mrope(r, {2, 2});
       S(r).mutable_xpos()->set_centre(1);
     },
     "CONFLICT", SETTINGS "xpos"},
    {"xpos with linear_positions",
     [](R& r) {
       Typed(r, "linear_positions", 2);
       S(r).mutable_xpos()->set_centre(1);
     },
     "CONFLICT", SETTINGS "xpos"},
};
INSTANTIATE_TEST_SUITE_P(OtherKinds, BadSettings, testing::ValuesIn(kOtherKinds));

const Case kTables[] = {
    {"no form", [](R& r) { r.clear_form(); }, "MISSING", "form"},
    {"no dtype", [](R& r) { r.clear_dtype(); }, "MISSING", "dtype"},
    {"integer dtype", [](R& r) { r.set_dtype(v1::DATA_TYPE_INT32); }, "UNSUPPORTED", "dtype"},
    {"no count", [](R& r) { r.clear_count(); }, "MISSING", "count"},
    {"negative count", [](R& r) { r.set_count(-1); }, "OUT_OF_RANGE", "count"},
    {"count that is not the ids'",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {2}, {0, 1});
     },
     "MISMATCH", "count"},
    {"offsets", [](R& r) { r.mutable_positions()->mutable_offsets()->add_offset(0); }, "NOT_READ", "positions.offsets"},
    {"cu_seqlens",
     [](R& r) {
       *r.mutable_positions()->mutable_cu_seqlens() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, 1});
     },
     "NOT_READ", "positions.cu_seqlens"},
    {"whole-batch length",
     [](R& r) {
       Dynamic(r);
       r.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_WHOLE_BATCH);
     },
     "OUT_OF_RANGE", "positions.scaling_length_rule"},
    {"length not given", [](R& r) { Dynamic(r); }, "MISSING", "positions.scaling_length_rule"},
    {"an operand without xpos", [](R& r) { r.set_operand(v1::OPERAND_KEY); }, "NOT_READ", "operand"},
    {"ids of several axes without a word",
     [](R& r) {
       Mrope(r, {2, 2});
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {1}, {0});
     },
     "MISSING", "positions.axis_dimension"},
    {"ids of too many axes",
     [](R& r) {
       Mrope(r, {2, 2});
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {3, 1}, {0, 0, 0});
       r.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
     },
     "MISMATCH", "positions.ids.shape"},
    {"axes of ids for one axis",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {1, 2}, {0, 0});
       r.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
     },
     "MISMATCH", "positions.ids.shape"},
    {"ids without room for axes",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {1}, {0});
       r.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
     },
     "MISMATCH", "positions.ids.shape"},
    {"an axis dimension of an offset", [](R& r) { r.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_NONE); },
     "NOT_READ", "positions.axis_dimension"},
    {"a grid of another number of axes",
     [](R& r) {
       r.clear_count();
       auto* grid = r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
       for (int n = 0; n < 2; ++n) grid->add_size(1);
     },
     "MISMATCH", "positions.segments.segment[0].grid.size"},
    {"a grid without sizes", [](R& r) { r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid(); },
     "MISSING", "positions.segments.segment[0].grid.size"},
    {"a grid of too few starts",
     [](R& r) {
       auto* grid = r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
       for (int n = 0; n < 2; ++n) grid->add_size(1);
       grid->add_start(0);
     },
     "MISMATCH", "positions.segments.segment[0].grid.start"},
    {"a grid that overflows",
     [](R& r) {
       auto* grid = r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
       for (int n = 0; n < 2; ++n) grid->add_size(int64_t{1} << 40);
     },
     "OUT_OF_RANGE", "positions.segments"},
    {"a grid that leaves float64",
     [](R& r) {
       r.clear_count();
       auto* grid = r.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
       grid->add_size(1);
       grid->add_step(1e300);
     },
     "OUT_OF_RANGE", "positions.segments.segment[0].grid.step[0]"},
    {"precision MODEL without a model", [](R& r) { r.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL); },
     "CONFLICT", "precision.preset"},
    {"unspecified preset", [](R& r) { r.mutable_precision()->set_preset(v1::PRECISION_PRESET_UNSPECIFIED); }, "MISSING",
     "precision.preset"},
    {"axes without frequencies", [](R& r) { r.mutable_precision()->mutable_axes()->set_rounding(v1::ROUNDING_ONCE); },
     "MISSING", "precision.axes.frequencies"},
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

// GenerateTable takes GIVEN, with one length.
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
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "seq_len"));
  request.add_seq_len(0);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "seq_len[0]"));
}

}  // namespace
}  // namespace posenc
