// Given frequencies and xPos that a caller may get wrong.
#include "tests/service/bad_settings.h"

namespace posenc::bad_settings {
namespace {

void Given(R& r, std::vector<double> inv_freq) {
  S(r).mutable_given_frequencies()->mutable_inv_freq()->Assign(inv_freq.begin(), inv_freq.end());
}
v1::AxialAxis& Axis(R& r, int64_t dim) {
  auto* axis = S(r).mutable_axial()->add_axes();
  axis->set_dim(dim);
  return *axis;
}
const Case kFrequencies[] = {
    {"axial without axes", [](R& r) { S(r).mutable_axial(); }, "MISSING", SETTINGS "axial.axes"},
    {"axial of too many axes",
     [](R& r) {
       for (int n = 0; n < 65; ++n) Axis(r, 2);
     },
     "OUT_OF_RANGE", SETTINGS "axial.axes"},
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
    {"axes by turns of two widths",
     [](R& r) {
       Axis(r, 4);
       Axis(r, 12);
       S(r).mutable_axial()->set_alternating(true);
     },
     "MISMATCH", SETTINGS "axial.axes[1].dim"},
    {"no part of halves", [](R& r) { S(r).set_half_split_parts(0); }, "OUT_OF_RANGE", SETTINGS "half_split_parts"},
    {"parts of halves that do not divide the pairs", [](R& r) { S(r).set_half_split_parts(3); }, "OUT_OF_RANGE",
     SETTINGS "half_split_parts"},
    {"axial with Lmax",
     [](R& r) {
       Axis(r, 8);
       S(r).set_max_position_embeddings(9);
     },
     "NOT_READ", SETTINGS "max_position_embeddings"},
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
    {"given: too many axes",
     [](R& r) {
       Given(r, std::vector<double>(65, 1));
       for (int n = 0; n < 65; ++n) S(r).mutable_given_frequencies()->add_axis(n);
     },
     "OUT_OF_RANGE", SETTINGS "given_frequencies.axis[64]"},
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
INSTANTIATE_TEST_SUITE_P(Frequencies, BadSettings, testing::ValuesIn(kFrequencies));

}  // namespace
}  // namespace posenc::bad_settings
