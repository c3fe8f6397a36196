// Tables given by the caller: rows by position, used unchanged.
#include <gtest/gtest.h>

#include "tests/service/call.h"

namespace posenc::given_table_test {
namespace {

constexpr int64_t kRows = 6, kPairs = 3;

std::vector<double> Entries(double first) {
  std::vector<double> values;
  for (int64_t n = 0; n < kRows * kPairs; ++n) values.push_back(first + static_cast<double>(n) / 3);
  return values;
}

v1::GenerateTableRequest Request(DType dtype = DType::kFP32) {
  v1::GenerateTableRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  auto* table = settings->mutable_given_table();
  *table->mutable_cos() = MakeTensor(dtype, {kRows, kPairs}, Entries(0.1));
  *table->mutable_sin() = MakeTensor(dtype, {kRows, kPairs}, Entries(-7.7));
  table->set_form(v1::TABLE_FORM_HALF_WIDTH);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kINT64, {4}, std::vector<int64_t>{5, 0, 2, 2});
  request.set_dtype(Wire(dtype));
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}
v1::GivenTable& T(v1::GenerateTableRequest& r) {
  return *r.mutable_rotary()->mutable_settings()->mutable_given_table();
}

TEST(GivenTable, RowsAreLookedUpAndRoundedOnce) {
  for (DType from : {DType::kFP64, DType::kFP32, DType::kBF16}) {
    for (DType to : {DType::kFP64, DType::kFP32, DType::kFP16}) {
      for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
        v1::GenerateTableRequest request = Request(from);
        request.set_dtype(Wire(to));
        request.mutable_precision()->set_preset(preset);
        const auto response = Call(request);
        ASSERT_THAT(response, IsOk());
        const std::vector<double> given = Unpack(from, Pack(from, Entries(0.1)));
        std::vector<double> expected;
        for (int64_t row : {5, 0, 2, 2}) {
          for (int64_t i = 0; i < kPairs; ++i) expected.push_back(given[row * kPairs + i]);
        }
        EXPECT_EQ(response->cos().data(), Pack(to, expected));
      }
    }
  }
}

TEST(GivenTable, FormsOfTheSameTable) {
  v1::GenerateTableRequest request = Request();
  const auto expected = Call(request);
  ASSERT_THAT(expected, IsOk());
  for (bool duplicated : {true, false}) {
    T(request).set_form(duplicated ? v1::TABLE_FORM_DUPLICATED : v1::TABLE_FORM_REPEAT_INTERLEAVED);
    for (const auto& [tensor, first] : {std::pair{T(request).mutable_cos(), 0.1}, {T(request).mutable_sin(), -7.7}}) {
      const std::vector<double> half = Entries(first);
      std::vector<double> full;
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t e = 0; e < 2 * kPairs; ++e) {
          full.push_back(half[row * kPairs + (duplicated ? e % kPairs : e / 2)]);
        }
      }
      *tensor = MakeTensor(DType::kFP32, {kRows, 2 * kPairs}, full);
    }
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->cos().data() + response->sin().data(), expected->cos().data() + expected->sin().data());
    EXPECT_EQ(response->info().plan_fingerprint(), expected->info().plan_fingerprint());
    // One entry of the second copy differs.
    (*T(request).mutable_sin()->mutable_data())[4 * (2 * kPairs + 2 * kPairs - 1)] ^= 1;
    EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "rotary.settings.given_table.sin"));
  }
}

// A given table rotates exactly like the formula that computed it, in both directions.
TEST(GivenTable, RotatesAsItsFormulaDoes) {
  v1::GenerateTableRequest table;
  auto* settings = table.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("default");
  settings->set_rotary_dim(16);
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  table.mutable_positions()->set_offset(0);
  table.set_count(100);
  table.set_dtype(v1::DATA_TYPE_FP32);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  const auto rows = Call(table);
  ASSERT_THAT(rows, IsOk());
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = table.rotary();
  request.mutable_positions()->set_offset(17);
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> x;
  for (int n = 0; n < 80 * 16; ++n) x.push_back(n % 13 - 6);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {80, 1, 16}, x);
  v1::ApplyRotaryRequest by_table = request;
  auto* given = by_table.mutable_rotary()->mutable_settings()->mutable_given_table();
  *given->mutable_cos() = rows->cos();
  *given->mutable_sin() = rows->sin();
  given->set_form(v1::TABLE_FORM_HALF_WIDTH);
  for (auto direction : {v1::DIRECTION_FORWARD, v1::DIRECTION_TRANSPOSE}) {
    request.set_direction(direction);
    by_table.set_direction(direction);
    const auto expected = Call(request), response = Call(by_table);
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->q().data(), expected->q().data());
  }
  by_table.set_direction(v1::DIRECTION_INVERSE);
  EXPECT_THAT(Call(by_table), IsInvalid("CONFLICT", "direction"));
}

TEST(GivenTable, PositionsAreRows) {
  const auto with = [](const auto& change) {
    v1::GenerateTableRequest request = Request();
    change(*request.mutable_positions());
    if (request.positions().has_offset()) request.set_count(3);
    return Call(request);
  };
  const auto ids = [](double id) {
    return [id](v1::Positions& p) { *p.mutable_ids() = MakeTensor(DType::kFP64, {2}, {0, id}); };
  };
  EXPECT_THAT(with(ids(5)), IsOk());
  for (double id : {6.0, -1.0, 0.5}) EXPECT_THAT(with(ids(id)), IsInvalid("OUT_OF_RANGE", "positions.ids[1]"));
  EXPECT_THAT(with([](auto& p) { p.set_offset(3); }), IsOk());
  EXPECT_THAT(with([](auto& p) { p.set_offset(4); }), IsInvalid("OUT_OF_RANGE", "positions.offset"));
  EXPECT_THAT(with([](auto& p) { p.set_offset(-1); }), IsInvalid("OUT_OF_RANGE", "positions.offset"));
  const auto line = [](int64_t count, double start, double step) {
    return [=](v1::Positions& p) {
      auto* segment = p.mutable_segments()->add_segment()->mutable_line();
      segment->set_count(count);
      segment->set_start(start);
      segment->set_step(step);
    };
  };
  EXPECT_THAT(with(line(3, 5, -2)), IsOk());
  EXPECT_THAT(with(line(1, 5, 0.5)), IsOk());
  EXPECT_THAT(with(line(3, 0, 0.5)), IsInvalid("OUT_OF_RANGE", "positions.segments.segment[0].line.step"));
  EXPECT_THAT(with(line(4, 0, 2)), IsInvalid("OUT_OF_RANGE", "positions.segments.segment[0].line.step"));
  EXPECT_THAT(with(line(1, 6, 1)), IsInvalid("OUT_OF_RANGE", "positions.segments.segment[0].line.start"));
}

#define TABLE "rotary.settings.given_table."
TEST(GivenTable, BadTablesAreRefused) {
  v1::GenerateTableRequest request = Request();
  *T(request).mutable_sin() = MakeTensor(DType::kFP32, {kRows, kPairs - 1}, std::vector<double>(kRows * (kPairs - 1)));
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", TABLE "sin"));
  *T(request).mutable_sin() = MakeTensor(DType::kFP64, {kRows, kPairs}, Entries(0));
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", TABLE "sin"));
  request = Request();
  T(request).mutable_cos()->mutable_data()->pop_back();
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", TABLE "cos.data"));
  request = Request();
  T(request).clear_form();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", TABLE "form"));
  T(request).set_form(v1::TABLE_FORM_DUPLICATED);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", TABLE "cos.shape"));
  request = Request();
  request.mutable_rotary()->mutable_settings()->set_rotary_dim(2 * kPairs + 2);
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", TABLE "cos.shape"));
  request = Request();
  T(request).mutable_cos()->add_shape(1);
  T(request).mutable_sin()->add_shape(1);
  EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", TABLE "cos.shape"));  // rows by token
  T(request).mutable_cos()->add_shape(1);
  T(request).mutable_sin()->add_shape(1);
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", TABLE "cos.shape"));
  request = Request();
  T(request).mutable_cos()->set_dtype(v1::DATA_TYPE_INT32);
  T(request).mutable_sin()->set_dtype(v1::DATA_TYPE_INT32);
  EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", TABLE "cos.dtype"));
}

}  // namespace
}  // namespace posenc::given_table_test
