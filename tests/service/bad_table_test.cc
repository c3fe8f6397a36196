// Tables and their positions that a caller may get wrong.
#include "tests/service/bad_settings.h"

namespace posenc::bad_settings {
namespace {

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
    {"ids of a batch",
     [](R& r) {
       *r.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {1, 1}, {0});
     },
     "MISMATCH", "positions.ids.shape"},
    {"more rows than there are numbers",
     [](R& r) {
       for (int n = 0; n < 2; ++n) {
         r.mutable_positions()->mutable_segments()->add_segment()->mutable_line()->set_count(int64_t{1} << 62);
       }
     },
     "OUT_OF_RANGE", "positions.segments.segment[0].line.count"},
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
     "OUT_OF_RANGE", "positions.segments.segment[0].grid.size[0]"},
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

}  // namespace
}  // namespace posenc::bad_settings
