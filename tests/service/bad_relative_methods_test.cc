// Relative scores whose method's own settings a caller may get wrong.
#include "tests/service/bad_relative.h"

namespace posenc::bad_relative {
namespace {

const Case<R> kOfQueries[] = {
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
    {"bias of W_kR", OfTransformerXl, [](R& r) { *Xl(r).mutable_position()->mutable_bias() = Zeros({8}); }, "NOT_READ",
     XL "position.bias"},
};
INSTANTIATE_TEST_SUITE_P(OfQueries, BadRelativeScores, testing::ValuesIn(kOfQueries));

const Case<R> kProjected[] = {
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
    {"position behind the table", OfTupe, [](R& r) { G(r).set_query_offset(1); }, "OUT_OF_RANGE",
     TUPE "position_embeddings"},
    {"position before the table", OfTupe, [](R& r) { G(r).set_query_offset(-1); }, "OUT_OF_RANGE",
     TUPE "position_embeddings"},
    {"no term", OfDeberta,
     [](R& r) {
       Deberta(r).clear_key();
       Deberta(r).clear_query();
       r.clear_k();
     },
     "MISSING", DEBERTA "key"},
};
INSTANTIATE_TEST_SUITE_P(Projected, BadRelativeScores, testing::ValuesIn(kProjected));

const Case<R> kOfStates[] = {
    {"no matrix", OfInkling, [](R& r) { Inkling(r).clear_projection(); }, "MISSING", INKLING "projection.dtype"},
    {"matrix of other channels", OfInkling,
     [](R& r) {
       *Inkling(r).mutable_projection() = Zeros({3, 2});
     },
     "MISMATCH", INKLING "projection.shape"},
    {"no distances", OfInkling,
     [](R& r) {
       *Inkling(r).mutable_projection() = Zeros({4, 0});
     },
     "MISMATCH", INKLING "projection.shape"},
    {"matrix with NaN", OfInkling,
     [](R& r) {
       *Inkling(r).mutable_projection() = MakeTensor(DType::kFP32, {4, 1}, {0, 0, std::nan(""), 0});
     },
     "OUT_OF_RANGE", INKLING "projection[2]"},
    {"alpha below 0", OfInkling, [](R& r) { Inkling(r).set_log_scaling_alpha(-0.1); }, "OUT_OF_RANGE",
     INKLING "log_scaling_alpha"},
    {"floor below 1", OfInkling, [](R& r) { Inkling(r).set_log_scaling_n_floor(0.5); }, "OUT_OF_RANGE",
     INKLING "log_scaling_n_floor"},
    {"no alpha", OfInkling, [](R& r) { Inkling(r).clear_log_scaling_alpha(); }, "MISSING", INKLING "log_scaling_alpha"},
    {"no floor", OfInkling, [](R& r) { Inkling(r).clear_log_scaling_n_floor(); }, "MISSING",
     INKLING "log_scaling_n_floor"},
    {"nothing scaled", OfInkling, [](R& r) { Inkling(r).clear_scaled(); }, "MISSING", INKLING "scaled"},
    {"scaled of another release", OfInkling, [](R& r) { Inkling(r).set_scaled(static_cast<v1::InklingScaled>(7)); },
     "UNKNOWN_VALUE", INKLING "scaled"},
    {"with content", OfInkling, [](R& r) { r.set_content(true); }, "CONFLICT", "content"},
    {"with keys", OfInkling,
     [](R& r) {
       *r.mutable_k() = Zeros({1, 1, 3, 4});
     },
     "NOT_READ", "k"},
};
INSTANTIATE_TEST_SUITE_P(OfStates, BadRelativeScores, testing::ValuesIn(kOfStates));

}  // namespace
}  // namespace posenc::bad_relative
