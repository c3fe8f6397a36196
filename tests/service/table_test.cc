// Tables of cosines and sines: row forms, position sources, tiles, and a rotation by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/service/call.h"

namespace posenc {
namespace {

constexpr int64_t kRows = 37, kPairs = 5;

v1::GenerateTableRequest Request(v1::TableForm form, DType dtype = DType::kFP32) {
  v1::GenerateTableRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  auto* p = settings->mutable_rope_parameters();
  p->set_rope_type("yarn");
  p->set_factor(4);
  p->set_original_max_position_embeddings(64);
  settings->set_rotary_dim(2 * kPairs);
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->set_offset(11);
  request.set_count(kRows);
  request.set_dtype(Wire(dtype));
  request.set_form(form);
  return request;
}

TEST(Table, FormsRepeatTheHalfWidthRow) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64}) {
    const auto half = Call(Request(v1::TABLE_FORM_HALF_WIDTH, dtype));
    const auto duplicated = Call(Request(v1::TABLE_FORM_DUPLICATED, dtype));
    const auto repeated = Call(Request(v1::TABLE_FORM_REPEAT_INTERLEAVED, dtype));
    ASSERT_THAT(half, IsOk());
    ASSERT_THAT(duplicated, IsOk());
    ASSERT_THAT(repeated, IsOk());
    EXPECT_EQ(ShapeOf(half->cos()), (std::vector<int64_t>{kRows, kPairs}));
    EXPECT_EQ(ShapeOf(repeated->sin()), (std::vector<int64_t>{kRows, 2 * kPairs}));
    for (const auto tensor : {&v1::GenerateTableResponse::cos, &v1::GenerateTableResponse::sin}) {
      const std::vector<double> h = ValuesOf(((*half).*tensor)()), d = ValuesOf(((*duplicated).*tensor)()),
                                r = ValuesOf(((*repeated).*tensor)());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t e = 0; e < 2 * kPairs; ++e) {
          ASSERT_EQ(d[row * 2 * kPairs + e], h[row * kPairs + e % kPairs]);
          ASSERT_EQ(r[row * 2 * kPairs + e], h[row * kPairs + e / 2]);
        }
      }
    }
  }
}

TEST(Table, PositionSourcesAgree) {
  v1::GenerateTableRequest request = Request(v1::TABLE_FORM_HALF_WIDTH);
  const auto expected = Call(request);
  std::vector<int64_t> ids;
  for (int64_t n = 0; n < kRows; ++n) ids.push_back(11 + n);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kINT64, {kRows}, ids);
  auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->cos().data() + response->sin().data(), expected->cos().data() + expected->sin().data());
  request.clear_count();
  v1::PositionLine* line = request.mutable_positions()->mutable_segments()->add_segment()->mutable_line();
  line->set_count(kRows);
  line->set_start(11);
  response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->cos().data() + response->sin().data(), expected->cos().data() + expected->sin().data());
}

TEST(Table, TilesAreTheWholeInPieces) {
  const auto whole = Call(Request(v1::TABLE_FORM_DUPLICATED));
  ASSERT_THAT(whole, IsOk());
  v1::StreamTableRequest request;
  *request.mutable_table() = Request(v1::TABLE_FORM_DUPLICATED);
  for (int64_t rows_per_tile : {1, 10, 37, 1000}) {
    request.set_rows_per_tile(rows_per_tile);
    const wire::InMessage payloads;
    const auto stream = wire::Prepare(request, payloads, {});
    ASSERT_THAT(stream, IsOk());
    ASSERT_EQ(stream->rows, kRows);
    ASSERT_EQ(stream->rows_per_tile, std::min(rows_per_tile, kRows));
    std::string cos, sin;
    WorkPool pool(1);
    for (int64_t row = 0; row < kRows; row += rows_per_tile) {
      v1::StreamTableResponse tile;
      const wire::Job job = stream->tile(row, &tile);
      EXPECT_EQ(tile.row_begin(), row);
      EXPECT_EQ(tile.has_info(), row == 0);
      std::vector<std::byte> c(job.outputs[0].bytes), s(job.outputs[1].bytes);
      std::byte* const buffers[] = {c.data(), s.data()};
      ASSERT_THAT(job.run(wire::InMessage(), buffers, pool, NeverCancelled), IsOk());
      cos.append(reinterpret_cast<const char*>(c.data()), c.size());
      sin.append(reinterpret_cast<const char*>(s.data()), s.size());
    }
    EXPECT_EQ(cos, whole->cos().data());
    EXPECT_EQ(sin, whole->sin().data());
  }
  request.set_rows_per_tile(0);
  EXPECT_THAT(wire::Prepare(request, wire::InMessage(), {}), IsInvalid("OUT_OF_RANGE", "rows_per_tile"));
  request.clear_table();
  EXPECT_THAT(wire::Prepare(request, wire::InMessage(), {}), IsInvalid("MISSING", "table"));
}

// Rotating with the table gives the bytes of ApplyRotary.
TEST(Table, RotatesAsApplyRotaryDoes) {
  const v1::GenerateTableRequest table = Request(v1::TABLE_FORM_HALF_WIDTH);
  const auto answer = Call(table);
  ASSERT_THAT(answer, IsOk());
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = table.rotary();
  *request.mutable_positions() = table.positions();
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> x;
  for (int64_t n = 0; n < kRows * 2 * kPairs; ++n) x.push_back(static_cast<double>(n % 17) / 8 - 1);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {kRows, 1, 2 * kPairs}, x);
  const auto rotated = Call(request);
  ASSERT_THAT(rotated, IsOk());
  EXPECT_EQ(rotated->info().plan_fingerprint(), answer->info().plan_fingerprint());
  const std::vector<double> cos = ValuesOf(answer->cos()), sin = ValuesOf(answer->sin()), y = ValuesOf(rotated->q());
  for (int64_t n = 0; n < kRows * kPairs; ++n) {
    const auto x0 = static_cast<float>(x[2 * n]), x1 = static_cast<float>(x[2 * n + 1]);
    const auto c = static_cast<float>(cos[n]), s = static_cast<float>(sin[n]);
    const float a = x0 * c, b = x1 * s, d = x1 * c, e = x0 * s;
    ASSERT_EQ(y[2 * n], a - b);
    ASSERT_EQ(y[2 * n + 1], d + e);
  }
}

TEST(Table, OfNoRows) {
  v1::GenerateTableRequest request = Request(v1::TABLE_FORM_HALF_WIDTH);
  request.set_count(0);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(ShapeOf(response->cos()), (std::vector<int64_t>{0, kPairs}));
  EXPECT_EQ(response->sin().data(), "");
}

}  // namespace
}  // namespace posenc
