// Half-split rotation in parts, as in Gemma 4's vision part, equals rotating each part by itself.
#include <gtest/gtest.h>

#include "tests/service/call.h"

namespace posenc::half_split_parts_test {
namespace {

constexpr int64_t kTokens = 7, kHeads = 3, kWidth = 24, kPart = 12;

v1::RotarySettings Settings(int parts) {
  v1::RotarySettings settings;
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  for (int axis = 0; axis < parts; ++axis) {
    auto* to = settings.mutable_axial()->add_axes();
    to->set_dim(kPart);
    to->set_rope_theta(100);
  }
  if (parts > 1) settings.set_half_split_parts(parts);
  return settings;
}

v1::Tensor Ids(std::vector<int64_t> axes) {
  std::vector<double> ids;
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t axis : axes) ids.push_back(static_cast<double>(axis == 0 ? token % 3 : token / 3));
  }
  std::vector<int64_t> shape = {kTokens};
  if (axes.size() > 1) shape.push_back(static_cast<int64_t>(axes.size()));
  return MakeTensor(DType::kFP64, shape, ids);
}

v1::ApplyRotaryRequest Apply(DType dtype) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary()->mutable_settings() = Settings(2);
  *request.mutable_positions()->mutable_ids() = Ids({0, 1});
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> x;
  for (int64_t n = 0; n < kTokens * kHeads * kWidth; ++n) x.push_back(static_cast<double>(n * n % 31) / 4 - 3);
  *request.mutable_q()->mutable_tensor() = MakeTensor(dtype, {kTokens, kHeads, kWidth}, x);
  return request;
}

TEST(HalfSplitParts, EachPartRotatesByItself) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    const auto together = Call(Apply(dtype));
    ASSERT_THAT(together, IsOk());
    v1::Tensor x = Apply(dtype).q().tensor();
    for (int64_t part : {0, 1}) {
      v1::ApplyRotaryRequest one = Apply(dtype);
      *one.mutable_rotary()->mutable_settings() = Settings(1);
      *one.mutable_positions()->mutable_ids() = Ids({part});
      one.mutable_positions()->clear_axis_dimension();
      *one.mutable_q()->mutable_tensor() = x;
      one.mutable_q()->set_rotary_offset(part * kPart);
      const auto response = Call(one);
      ASSERT_THAT(response, IsOk());
      x.set_data(response->q().data());
    }
    EXPECT_EQ(together->q().data(), x.data());
    // Half-split rotation of the whole gives other bytes.
    v1::ApplyRotaryRequest whole = Apply(dtype);
    whole.mutable_rotary()->mutable_settings()->clear_half_split_parts();
    EXPECT_NE(Call(whole)->q().data(), together->q().data());
  }
}

// Parts do not affect interleaved pairs; with half-split output the values are the same at other places.
TEST(HalfSplitParts, InterleavedHasNone) {
  v1::ApplyRotaryRequest request = Apply(DType::kFP32);
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  const auto with = Call(request);
  ASSERT_THAT(with, IsOk());
  settings->set_output_pairing(v1::PAIRING_HALF_SPLIT);
  const auto leaves = Call(request);
  ASSERT_THAT(leaves, IsOk());
  settings->clear_output_pairing();
  settings->clear_half_split_parts();
  const auto without = Call(request);
  ASSERT_THAT(without, IsOk());
  EXPECT_EQ(with->q().data(), without->q().data());
  const std::vector<double> pairs = ValuesOf(without->q()), halves = ValuesOf(leaves->q());
  for (int64_t n = 0; n < kTokens * kHeads * kWidth; ++n) {
    const int64_t row = n / kWidth * kWidth, pair = n % kWidth / 2, second = n % 2;
    EXPECT_EQ(pairs[n], halves[row + pair / 6 * kPart + second * 6 + pair % 6]);
  }
}

// A full-width table has each part's entries twice, and a given table is read the same way.
TEST(HalfSplitParts, TablesRepeatEachPart) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary()->mutable_settings() = Settings(2);
  *request.mutable_positions()->mutable_ids() = Ids({0, 1});
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  request.set_count(kTokens);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  const auto half = Call(request);
  ASSERT_THAT(half, IsOk());
  request.set_form(v1::TABLE_FORM_DUPLICATED);
  const auto full = Call(request);
  ASSERT_THAT(full, IsOk());
  const std::vector<double> once = ValuesOf(half->cos()), twice = ValuesOf(full->cos());
  for (int64_t n = 0; n < kTokens * kWidth; ++n) {
    const int64_t row = n / kWidth * kWidth / 2, e = n % kWidth;
    EXPECT_EQ(twice[n], once[row + e / kPart * 6 + e % 6]) << n;
  }

  v1::ApplyRotaryRequest apply = Apply(DType::kFP32);
  const auto expected = Call(apply);
  auto* settings = apply.mutable_rotary()->mutable_settings();
  *settings->mutable_given_table()->mutable_cos() = full->cos();
  *settings->mutable_given_table()->mutable_sin() = full->sin();
  settings->mutable_given_table()->set_form(v1::TABLE_FORM_DUPLICATED);
  apply.mutable_positions()->clear_axis_dimension();
  std::vector<double> rows;
  for (int64_t n = 0; n < kTokens; ++n) rows.push_back(static_cast<double>(n));
  *apply.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kTokens}, rows);
  const auto by_table = Call(apply);
  ASSERT_THAT(by_table, IsOk());
  EXPECT_EQ(by_table->q().data(), expected->q().data());
  settings->set_half_split_parts(5);
  EXPECT_THAT(Call(apply), IsInvalid("OUT_OF_RANGE", "rotary.settings.given_table.cos.shape"));
}

}  // namespace
}  // namespace posenc::half_split_parts_test
