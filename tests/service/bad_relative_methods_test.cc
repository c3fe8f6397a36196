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

}  // namespace
}  // namespace posenc::bad_relative
