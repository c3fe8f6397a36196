// Learned tables, timesteps, grids, Fourier features and tensors to add to that a caller may get wrong: each is refused
// with its reason and its field.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/service/call.h"

namespace posenc::bad_embedding_test {
namespace {

using E = v1::GenerateEmbeddingRequest;

v1::Learned& L(E& r) { return *r.mutable_learned(); }
v1::Timestep& T(E& r) { return *r.mutable_timestep(); }
v1::Grid& G(E& r) { return *r.mutable_grid(); }
void Detr(E& r) { G(r).set_convention(v1::GRID_CONVENTION_DETR); }
v1::Fourier& F(E& r) { return *r.mutable_fourier(); }

E Learned() {
  E request;
  *L(request).mutable_table() = MakeTensor(DType::kFP32, {5, 2}, std::vector<double>(10));
  L(request).set_offset(2);
  request.mutable_positions()->set_offset(0);
  request.set_count(3);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

v1::TableResize& R(E& r) { return *L(r).mutable_resize(); }

E Resized() {
  E request;
  *L(request).mutable_table() = MakeTensor(DType::kFP32, {9, 2}, std::vector<double>(18));
  R(request).add_target(4);
  R(request).add_target(6);
  R(request).set_mode(v1::RESIZE_MODE_BICUBIC);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

E Timestep() {
  E request;
  T(request).set_dim(8);
  request.mutable_positions()->set_offset(0);
  request.set_count(3);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

E Grid() {
  E request;
  G(request).set_convention(v1::GRID_CONVENTION_DIFFUSERS);
  G(request).set_dim(16);
  G(request).set_height(2);
  G(request).set_width(3);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

E Fourier() {
  E request;
  *F(request).mutable_frequencies() = MakeTensor(DType::kFP32, {3, 2}, std::vector<double>(6));
  *F(request).mutable_points() = MakeTensor(DType::kFP64, {4, 2}, std::vector<double>(8));
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

E Added() {
  E request = Learned();
  *request.mutable_add_to() = MakeTensor(DType::kFP16, {2, 3, 2}, std::vector<double>(12));
  request.clear_dtype();
  return request;
}

struct Case {
  const char* what;
  E (*valid)();
  void (*change)(E&);
  const char* reason;
  const char* field;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class BadEmbedding : public testing::TestWithParam<Case> {};

TEST_P(BadEmbedding, IsRefused) {
  E request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

v1::Tensor Flags() { return MakeTensor(DType::kBOOL, {1, 3}, std::vector<uint8_t>{1, 1, 1}); }
v1::Tensor Ids(double id) { return MakeTensor(DType::kFP64, {1}, {id}); }
void At(E& r, double position) {
  *r.mutable_positions()->mutable_ids() = Ids(position);
  r.clear_count();
}

const Case kCases[] = {
    {"table too short for its shape", Learned, [](E& r) { L(r).mutable_table()->mutable_data()->pop_back(); },
     "MISMATCH", "learned.table.data"},
    {"position after the table", Learned, [](E& r) { r.set_count(4); }, "OUT_OF_RANGE", "positions[3]"},
    {"position before the table", Learned, [](E& r) { At(r, -3); }, "OUT_OF_RANGE", "positions[0]"},
    {"position between rows", Learned, [](E& r) { At(r, 0x1p-60); }, "OUT_OF_RANGE", "positions[0]"},
    {"padding without a row", Learned,
     [](E& r) {
       L(r).set_offset(0);
       *L(r).mutable_token_valid() = MakeTensor(DType::kBOOL, {1, 2}, std::vector<uint8_t>{1, 0});
       r.clear_positions(), r.clear_count();
     },
     "OUT_OF_RANGE", "positions[1]"},
    {"token_valid beside positions", Learned, [](E& r) { *L(r).mutable_token_valid() = Flags(); }, "CONFLICT",
     "positions"},

    {"position after a resized table", Resized, [](E& r) { At(r, 24); }, "OUT_OF_RANGE", "positions[0]"},
    {"table to resize with a NaN", Resized,
     [](E& r) {
       *L(r).mutable_table() = MakeTensor(DType::kFP32, {1, 2}, {0, std::nan("")});
     },
     "OUT_OF_RANGE", "learned.table[0, 1]"},
    {"grid that is no square", Resized, [](E& r) { R(r).set_rows_before(1); }, "MISSING", "learned.resize.source"},
    {"grid of other cells", Resized, [](E& r) { R(r).add_source(3), R(r).add_source(2); }, "MISMATCH",
     "learned.resize.source"},
    {"all rows beside the grid", Resized, [](E& r) { R(r).set_rows_before(4), R(r).set_rows_after(5); }, "MISMATCH",
     "learned.resize.rows_before"},
    {"two axes of a line", Resized, [](E& r) { R(r).set_mode(v1::RESIZE_MODE_LINEAR); }, "MISMATCH",
     "learned.resize.target"},
    {"axis that is too long", Resized, [](E& r) { R(r).set_target(1, 16385); }, "OUT_OF_RANGE",
     "learned.resize.target[1]"},
    {"factor of another target", Resized, [](E& r) { R(r).add_scale_factor(4.0 / 3), R(r).add_scale_factor(1); },
     "MISMATCH", "learned.resize.target[1]"},
    {"factors with align_corners", Resized,
     [](E& r) { R(r).add_scale_factor(4.0 / 3), R(r).add_scale_factor(2), R(r).set_align_corners(true); }, "NOT_READ",
     "learned.resize.scale_factor"},
    {"zeros around a stretched kernel", Resized,
     [](E& r) { R(r).set_antialias(true), R(r).set_padding(v1::RESIZE_PADDING_ZEROS); }, "NOT_READ",
     "learned.resize.padding"},
    {"gather of a stretched kernel", Resized,
     [](E& r) { R(r).set_antialias(true), R(r).set_operations(v1::RESIZE_OPERATIONS_GATHER); }, "NOT_READ",
     "learned.resize.operations"},
    {"align_corners of NEAREST", Resized,
     [](E& r) { R(r).set_mode(v1::RESIZE_MODE_NEAREST), R(r).set_align_corners(true); }, "NOT_READ",
     "learned.resize.align_corners"},
    {"blocks that do not fit", Resized, [](E& r) { R(r).set_spatial_merge_size(4); }, "MISMATCH",
     "learned.resize.target[1]"},

    {"dim 2 divides by zero", Timestep, [](E& r) { T(r).set_dim(2); }, "OUT_OF_RANGE", "timestep.downscale_freq_shift"},
    {"dim 3 divides by zero", Timestep, [](E& r) { T(r).set_dim(3); }, "OUT_OF_RANGE", "timestep.downscale_freq_shift"},
    {"shift that makes frequencies overflow", Timestep, [](E& r) { T(r).set_downscale_freq_shift(4 + 1e-9); },
     "OUT_OF_RANGE", "timestep.downscale_freq_shift"},

    {"dim that divides by zero", Grid,
     [](E& r) { G(r).set_convention(v1::GRID_CONVENTION_BIG_VISION), G(r).set_dim(4); }, "OUT_OF_RANGE", "grid.dim"},
    {"pos_embed_max_size below the height", Grid, [](E& r) { G(r).set_height(9), G(r).set_pos_embed_max_size(8); },
     "OUT_OF_RANGE", "grid.pos_embed_max_size"},
    {"interpolation_scale that float32 cannot hold", Grid,
     [](E& r) {
       G(r).set_interpolation_scale(1e-300);
       r.mutable_precision()->set_preset(v1::PRECISION_PRESET_FLUX);
     },
     "OUT_OF_RANGE", "grid.interpolation_scale"},
    {"scale of DETR that float32 cannot hold", Grid,
     [](E& r) {
       Detr(r), G(r).set_scale(1e300);
       r.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
     },
     "OUT_OF_RANGE", "grid.scale"},
    {"offset of DETR whose first cell float32 cannot hold", Grid,
     [](E& r) {
       Detr(r), G(r).set_height(2), G(r).set_width(2), G(r).set_offset(-1048576), G(r).set_scale(6.5e32);
       r.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
     },
     "OUT_OF_RANGE", "grid.scale"},
    {"positions of a grid", Grid, [](E& r) { r.mutable_positions()->set_offset(0); }, "CONFLICT", "positions"},

    {"half-precision points", Fourier,
     [](E& r) {
       *F(r).mutable_points() = MakeTensor(DType::kFP16, {1, 2}, {1, 2});
     },
     "UNSUPPORTED", "fourier.points.dtype"},

    {"another width", Added,
     [](E& r) {
       *r.mutable_add_to() = MakeTensor(DType::kFP32, {3, 3}, std::vector<double>(9));
     },
     "MISMATCH", "add_to.shape"},
    {"another length", Added,
     [](E& r) {
       *r.mutable_add_to() = MakeTensor(DType::kFP32, {2, 2}, std::vector<double>(4));
     },
     "MISMATCH", "add_to.shape"},
    {"too few axes", Added,
     [](E& r) {
       *r.mutable_add_to() = MakeTensor(DType::kFP32, {2}, {1, 2});
     },
     "MISMATCH", "add_to.shape"},
    {"data too short", Added, [](E& r) { r.mutable_add_to()->mutable_data()->pop_back(); }, "MISMATCH", "add_to.data"},
};
INSTANTIATE_TEST_SUITE_P(Embeddings, BadEmbedding, testing::ValuesIn(kCases));

// The error gives the position and the number of rows.
TEST(LearnedTable, NamesPositionAndRows) {
  E request = Learned();
  At(request, 3);
  EXPECT_EQ(std::string(Call(request).status().message()),
            "positions[0]: is 3; must be a row of the table: its 5 rows are for positions -2 .. 2");
}

TEST(EmbeddingLimits, AnswersThatCannotFit) {
  E request = Grid();
  G(request).set_width(int64_t{1} << 29);
  EXPECT_THAT(Call(request), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
  request = Learned();
  request.set_count(int64_t{1} << 30);
  EXPECT_THAT(Call(request), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
}

}  // namespace
}  // namespace posenc::bad_embedding_test
