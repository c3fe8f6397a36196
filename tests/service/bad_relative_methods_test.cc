// Relative scores whose method's own settings a caller may get wrong.
#include "tests/service/bad_relative.h"

namespace posenc::bad_relative {
namespace {

const Case<R> kOfQueries[] = {
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
    {"u of another width", OfTransformerXl,
     [](R& r) {
       r.set_content(true);
       *r.mutable_k() = Zeros({1, 1, 3, 4});
       *Xl(r).mutable_content_bias() = Zeros({2, 3});
     },
     "MISMATCH", XL "content_bias.shape"},
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
    {"norm of another width", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_weight() = Zeros({5}); },
     "MISMATCH", TUPE "layer_norm.weight.shape"},
    {"NaN in the norm", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_bias() = WithLast({6}, NAN); },
     "OUT_OF_RANGE", TUPE "layer_norm.bias[5]"},
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
    {"table too small", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = Zeros({15, 6});
     },
     "MISMATCH", DEBERTA "relative_embeddings.shape"},
    {"NaN in the table", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = WithLast({16, 6}, NAN);
     },
     "OUT_OF_RANGE", DEBERTA "relative_embeddings[95]"},
};
INSTANTIATE_TEST_SUITE_P(Projected, BadRelativeScores, testing::ValuesIn(kProjected));

const Case<R> kOthers[] = {
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

}  // namespace
}  // namespace posenc::bad_relative
