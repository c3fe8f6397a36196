// Parameters of scalings that a caller may get wrong.
#include "tests/service/bad_settings.h"

namespace posenc::bad_settings {
namespace {

void Longrope(R& r) {
  As(r, "longrope");
  P(r).set_factor(4);
  P(r).set_original_max_position_embeddings(4096);
  for (int i = 0; i < 4; ++i) P(r).add_short_factor(1), P(r).add_long_factor(2);
  P(r).set_longrope_branch(v1::LONGROPE_BRANCH_LONG);
}

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
    {"yarn by 0", [](R& r) { P(r).set_factor(0); }, "OUT_OF_RANGE", ROPE "factor"},
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
};
INSTANTIATE_TEST_SUITE_P(Scalings, BadSettings, testing::ValuesIn(kScalings));

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

}  // namespace
}  // namespace posenc::bad_settings
