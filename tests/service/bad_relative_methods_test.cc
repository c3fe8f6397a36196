// Relative scores whose method's own settings a caller may get wrong.
#include "tests/service/bad_relative.h"

namespace posenc::bad_relative {
namespace {

const Case<R> kOfQueries[] = {
    {"no table", OfShaw, [](R& r) { Shaw(r).clear_table(); }, "MISSING", SHAW "table.dtype"},
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
    {"before the table", OfShaw, [](R& r) { Shaw(r).set_before(-1); }, "OUT_OF_RANGE", SHAW "before"},
    {"after the table", OfShaw, [](R& r) { Shaw(r).set_before(5); }, "OUT_OF_RANGE", SHAW "before"},
    {"far before the table", OfShaw, [](R& r) { Shaw(r).set_before(kLeast); }, "OUT_OF_RANGE", SHAW "before"},
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
    {"no order", OfShaw, [](R& r) { Shaw(r).clear_order(); }, "MISSING", SHAW "order"},
    {"no clip", OfShaw, [](R& r) { Shaw(r).clear_clip(); }, "MISSING", SHAW "clip"},
    {"beyond the table", OfShaw,
     [](R& r) {
       Shaw(r).set_clip(false);
       G(r).set_query_offset(1);
     },
     "OUT_OF_RANGE", SHAW "table"},
    {"no weight", OfTransformerXl, [](R& r) { Xl(r).clear_position(); }, "MISSING", XL "position.weight"},
    {"no layout", OfTransformerXl, [](R& r) { Xl(r).mutable_position()->clear_layout(); }, "MISSING",
     XL "position.layout"},
    {"layout alone", OfTransformerXl, [](R& r) { Xl(r).mutable_position()->clear_weight(); }, "NOT_READ",
     XL "position.layout"},
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
    {"too few heads", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({4, 6});
     },
     "MISMATCH", XL "position.weight.shape"},
    {"part of a head", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_position() = Weights({10, 6});
     },
     "MISMATCH", XL "position.weight.shape"},
    {"heads behind the last", OfTransformerXl, [](R& r) { G(r).set_head_start(1); }, "MISMATCH",
     XL "position.weight.shape"},
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
    {"u without content", OfTransformerXl,
     [](R& r) {
       *Xl(r).mutable_content_bias() = Zeros({2, 4});
     },
     "NOT_READ", XL "content_bias"},
    {"u of another width", OfTransformerXl,
     [](R& r) {
       r.set_content(true);
       *r.mutable_k() = Zeros({1, 1, 3, 4});
       *Xl(r).mutable_content_bias() = Zeros({2, 3});
     },
     "MISMATCH", XL "content_bias.shape"},
    {"clamped to nothing", OfTransformerXl, [](R& r) { Xl(r).set_clamp_len(0); }, "OUT_OF_RANGE", XL "clamp_len"},
};
INSTANTIATE_TEST_SUITE_P(OfQueries, BadRelativeScores, testing::ValuesIn(kOfQueries));

const Case<R> kProjected[] = {
    {"no cls", OfTupe, [](R& r) { Tupe(r).clear_cls(); }, "MISSING", TUPE "cls"},
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
    {"table's layout alone", OfTupe, [](R& r) { Tupe(r).clear_relative_bias_table(); }, "NOT_READ",
     TUPE "relative_bias_table_layout"},
    {"table without buckets", OfTupe, [](R& r) { Tupe(r).clear_relative_bias(); }, "MISSING", TUPE "relative_bias"},
    {"table without layout", OfTupe, [](R& r) { Tupe(r).clear_relative_bias_table_layout(); }, "MISSING",
     TUPE "relative_bias_table_layout"},
    {"no direction", OfTupe, [](R& r) { Tupe(r).mutable_relative_bias()->clear_bidirectional(); }, "MISSING",
     TUPE "relative_bias.bidirectional"},
    {"no buckets", OfTupe, [](R& r) { Tupe(r).mutable_relative_bias()->set_num_buckets(0); }, "OUT_OF_RANGE",
     TUPE "relative_bias.num_buckets"},
    {"table of other buckets", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_relative_bias_table() = Zeros({30, 2});
     },
     "MISMATCH", TUPE "relative_bias_table.shape"},
    {"table of too few heads", OfTupe,
     [](R& r) {
       *Tupe(r).mutable_relative_bias_table() = Zeros({32, 1});
     },
     "MISMATCH", TUPE "relative_bias_table.shape"},
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
    {"norm without epsilon", OfTupe, [](R& r) { Tupe(r).mutable_layer_norm()->clear_epsilon(); }, "MISSING",
     TUPE "layer_norm.epsilon"},
    {"epsilon 0", OfTupe, [](R& r) { Tupe(r).mutable_layer_norm()->set_epsilon(0); }, "OUT_OF_RANGE",
     TUPE "layer_norm.epsilon"},
    {"NaN epsilon", OfDeberta, [](R& r) { Deberta(r).mutable_layer_norm()->set_epsilon(NAN); }, "OUT_OF_RANGE",
     DEBERTA "layer_norm.epsilon"},
    {"norm of another width", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_weight() = Zeros({5}); },
     "MISMATCH", TUPE "layer_norm.weight.shape"},
    {"NaN in the norm", OfTupe, [](R& r) { *Tupe(r).mutable_layer_norm()->mutable_bias() = WithLast({6}, NAN); },
     "OUT_OF_RANGE", TUPE "layer_norm.bias[5]"},
    {"width without a weight", OfTupe, [](R& r) { Tupe(r).clear_query(); }, "MISMATCH", TUPE "query.weight.shape"},
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
    {"no max_relative_positions", OfDeberta, [](R& r) { Deberta(r).clear_max_relative_positions(); }, "OUT_OF_RANGE",
     DEBERTA "max_relative_positions"},
    {"too many positions", OfDeberta, [](R& r) { Deberta(r).set_max_relative_positions(65537); }, "OUT_OF_RANGE",
     DEBERTA "max_relative_positions"},
    {"odd number of buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(7); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"two buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(2); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"more buckets than positions", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(30); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"least number of buckets", OfDeberta, [](R& r) { Deberta(r).set_position_buckets(kLeast); }, "OUT_OF_RANGE",
     DEBERTA "position_buckets"},
    {"table too small", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = Zeros({15, 6});
     },
     "MISMATCH", DEBERTA "relative_embeddings.shape"},
    {"table too small for v1", OfDeberta, [](R& r) { Deberta(r).clear_position_buckets(); }, "MISMATCH",
     DEBERTA "relative_embeddings.shape"},
    {"NaN in the table", OfDeberta,
     [](R& r) {
       *Deberta(r).mutable_relative_embeddings() = WithLast({16, 6}, NAN);
     },
     "OUT_OF_RANGE", DEBERTA "relative_embeddings[95]"},
    {"no distance", OfDeberta, [](R& r) { Deberta(r).clear_distance(); }, "MISSING", DEBERTA "distance"},
};
INSTANTIATE_TEST_SUITE_P(Projected, BadRelativeScores, testing::ValuesIn(kProjected));

const Case<R> kOthers[] = {
    {"no wavelet", OfWpr, [](R& r) { Wpr(r).clear_wavelet(); }, "MISSING", WPR "wavelet"},
    {"no channels", OfWpr, [](R& r) { Wpr(r).clear_channels(); }, "MISSING", WPR "channels"},
    {"no distance", OfWpr, [](R& r) { Wpr(r).clear_distance(); }, "MISSING", WPR "distance"},
    {"scales that do not divide d", OfWpr, [](R& r) { Wpr(r).set_scales(3); }, "MISMATCH", WPR "scales"},
    {"eight by default", OfWpr, [](R& r) { Wpr(r).clear_scales(); }, "MISMATCH", WPR "scales"},
    {"no scales", OfWpr, [](R& r) { Wpr(r).set_scales(0); }, "MISMATCH", WPR "scales"},
    {"negative scales", OfWpr, [](R& r) { Wpr(r).set_scales(-2); }, "MISMATCH", WPR "scales"},
    {"exponent too large", OfWpr, [](R& r) { Wpr(r).set_first_exponent(33); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"exponent too small", OfWpr, [](R& r) { Wpr(r).set_first_exponent(-33); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"least exponent", OfWpr, [](R& r) { Wpr(r).set_first_exponent(kLeast); }, "OUT_OF_RANGE", WPR "first_exponent"},
    {"Morlet without c", OfWpr, [](R& r) { Wpr(r).set_wavelet(v1::WAVELET_MORLET); }, "MISSING",
     WPR "morlet_frequency"},
    {"c of another", OfWpr, [](R& r) { Wpr(r).set_morlet_frequency(1); }, "NOT_READ", WPR "morlet_frequency"},
    {"infinite c", OfWpr,
     [](R& r) {
       Wpr(r).set_wavelet(v1::WAVELET_MORLET);
       Wpr(r).set_morlet_frequency(INFINITY);
     },
     "OUT_OF_RANGE", WPR "morlet_frequency"},
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
