// Biases of the distance: every form, mask and geometry against one simple loop.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/mapping/full_messages.h"
#include "tests/service/call.h"

namespace posenc::bias_test {
namespace {

constexpr int64_t kB = 2, kH = 5, kSq = 4, kSk = 7;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One cell of one form in float32, from the form's definition.
float Cell(v1::AlibiForm form, float slope, float future_slope, double i, double j, int64_t key_length) {
  const auto distance = static_cast<float>(j - i);
  switch (form) {
    case v1::ALIBI_FORM_BLOOM: return slope * static_cast<float>(j);
    case v1::ALIBI_FORM_MPT: return slope * static_cast<float>(j - static_cast<double>(key_length - 1));
    case v1::ALIBI_FORM_SYMMETRIC: return -slope * std::abs(distance);
    case v1::ALIBI_FORM_CAUSAL: return distance <= 0 ? slope * distance : 0.0f;
    case v1::ALIBI_FORM_ASYMMETRIC: return distance <= 0 ? slope * distance : -future_slope * distance;
    default: return NAN;
  }
}

constexpr v1::AlibiForm kForms[] = {v1::ALIBI_FORM_BLOOM, v1::ALIBI_FORM_MPT, v1::ALIBI_FORM_SYMMETRIC,
                                    v1::ALIBI_FORM_CAUSAL, v1::ALIBI_FORM_ASYMMETRIC};
const std::vector<double> kSlopes = {0.5, 0.25, 0.3, 0.7, 0.01};
const std::vector<double> kFutureSlopes = {0.1, 0.2, 0.6, 0.4, 0.9};

v1::GenerateBiasRequest Request(v1::AlibiForm form) {
  v1::GenerateBiasRequest request;
  v1::Alibi* alibi = request.mutable_method()->mutable_alibi();
  alibi->set_num_heads(kH);
  alibi->set_form(form);
  *alibi->mutable_given() = MakeTensor(DType::kFP32, {kH}, kSlopes);
  if (form == v1::ALIBI_FORM_ASYMMETRIC) {
    *alibi->mutable_future_slopes() = MakeTensor(DType::kFP32, {kH}, kFutureSlopes);
  }
  request.mutable_geometry()->set_query_length(kSq);
  request.mutable_geometry()->set_key_length(kSk);
  request.mutable_geometry()->set_query_offset(kSk - kSq);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

using Positions2 = std::function<double(int64_t b, int64_t n)>;
using Visible = std::function<bool(int64_t b, double i, double j, int64_t key)>;

// The expected answer [batches][heads from head_start][Sq][Sk], with `fill` for hidden cells.
std::vector<double> Expected(v1::AlibiForm form, int64_t batches, int64_t head_start, int64_t heads,
                             const Positions2& query, const Positions2& key, const Visible& visible = nullptr,
                             double fill = 0) {
  std::vector<double> values;
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = head_start; h < head_start + heads; ++h) {
      for (int64_t i = 0; i < kSq; ++i) {
        for (int64_t j = 0; j < kSk; ++j) {
          const bool hidden = visible && !visible(b, query(b, i), key(b, j), j);
          values.push_back(hidden ? fill
                                  : Cell(form, static_cast<float>(kSlopes[h]), static_cast<float>(kFutureSlopes[h]),
                                         query(b, i), key(b, j), kSk));
        }
      }
    }
  }
  return values;
}

const Positions2 kCached = [](int64_t, int64_t n) { return static_cast<double>(kSk - kSq + n); };
const Positions2 kFromZero = [](int64_t, int64_t n) { return static_cast<double>(n); };

void ExpectBias(const v1::GenerateBiasRequest& request, const std::vector<int64_t>& shape,
                const std::vector<double>& expected) {
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(ShapeOf(response->bias()), shape);
  EXPECT_EQ(ValuesOf(response->bias()), expected);
}

TEST(Bias, EveryForm) {
  for (v1::AlibiForm form : kForms) {
    SCOPED_TRACE(v1::AlibiForm_Name(form));
    ExpectBias(Request(form), {kH, kSq, kSk}, Expected(form, 1, 0, kH, kCached, kFromZero));
  }
}

TEST(Bias, AHeadRange) {
  for (v1::AlibiForm form : kForms) {
    v1::GenerateBiasRequest request = Request(form);
    request.mutable_geometry()->set_head_start(1);
    request.mutable_geometry()->set_head_count(3);
    ExpectBias(request, {3, kSq, kSk}, Expected(form, 1, 1, 3, kCached, kFromZero));
    request.mutable_geometry()->clear_head_count();
    ExpectBias(request, {4, kSq, kSk}, Expected(form, 1, 1, 4, kCached, kFromZero));
  }
}

TEST(Bias, OffsetsAndPositionsPerBatchRow) {
  v1::GenerateBiasRequest request = Request(v1::ALIBI_FORM_SYMMETRIC);
  auto* offsets = request.mutable_geometry()->mutable_query_offsets();
  offsets->add_offset(3);
  offsets->add_offset(-2);
  const Positions2 query = [](int64_t b, int64_t n) { return static_cast<double>((b == 0 ? 3 : -2) + n); };
  ExpectBias(request, {kB, kH, kSq, kSk}, Expected(v1::ALIBI_FORM_SYMMETRIC, kB, 0, kH, query, kFromZero));

  std::vector<double> queries, keys;
  for (int64_t n = 0; n < kB * kSq; ++n) queries.push_back(static_cast<double>(n * n) / 4);
  for (int64_t n = 0; n < kB * kSk; ++n) keys.push_back(static_cast<double>(3 * n) - 5.5);
  *request.mutable_geometry()->mutable_query_positions() = MakeTensor(DType::kFP64, {kB, kSq}, queries);
  *request.mutable_geometry()->mutable_key_positions() = MakeTensor(DType::kFP64, {kB, kSk}, keys);
  ExpectBias(request, {kB, kH, kSq, kSk},
             Expected(
                 v1::ALIBI_FORM_SYMMETRIC, kB, 0, kH, [&](int64_t b, int64_t n) { return queries[b * kSq + n]; },
                 [&](int64_t b, int64_t n) { return keys[b * kSk + n]; }));
}

TEST(Bias, Masks) {
  const std::vector<uint8_t> valid = {0, 0, 1, 1, 1, 1, 1,  //
                                      1, 1, 1, 1, 1, 0, 1};
  for (v1::AlibiForm form : kForms) {
    SCOPED_TRACE(v1::AlibiForm_Name(form));
    v1::GenerateBiasRequest request = Request(form);
    v1::Mask* mask = request.mutable_mask();
    mask->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
    mask->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
    mask->set_causal(true);
    ExpectBias(request, {kH, kSq, kSk},
               Expected(
                   form, 1, 0, kH, kCached, kFromZero, [](int64_t, double i, double j, int64_t) { return j <= i; },
                   -kInfinity));
    mask->set_window_left(2);
    ExpectBias(request, {kH, kSq, kSk},
               Expected(
                   form, 1, 0, kH, kCached, kFromZero,
                   [](int64_t, double i, double j, int64_t) { return j <= i && j >= i - 2; }, -kInfinity));
    mask->set_causal(false);
    mask->set_window_right(1);
    mask->set_fill_value(-1e4);
    *mask->mutable_key_valid() = MakeTensor(DType::kBOOL, {kB, kSk}, valid);
    ExpectBias(request, {kB, kH, kSq, kSk},
               Expected(
                   form, kB, 0, kH, kCached, kFromZero,
                   [&](int64_t b, double i, double j, int64_t key) {
                     return j >= i - 2 && j <= i + 1 && valid[b * kSk + key] == 1;
                   },
                   -1e4));
  }
}

TEST(Bias, FullyMaskedRowsAsAsked) {
  v1::GenerateBiasRequest request = Request(v1::ALIBI_FORM_CAUSAL);
  v1::Mask* mask = request.mutable_mask();
  mask->set_causal(true);
  *mask->mutable_key_valid() = MakeTensor(DType::kBOOL, {1, kSk}, std::vector<uint8_t>{0, 0, 0, 0, 0, 1, 1});
  for (v1::DataType dtype : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16}) {
    request.set_dtype(dtype);
    mask->set_fill_kind(v1::MASK_FILL_LOWEST_FINITE);
    mask->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
    const double lowest = dtype == v1::DATA_TYPE_FP32   ? std::numeric_limits<float>::lowest()
                          : dtype == v1::DATA_TYPE_FP16 ? -65504
                                                        : -0x1.fep127;
    auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ValuesOf(response->bias())[0], lowest);        // keys 5 and 6 come after query 3, the others are invalid
    EXPECT_EQ(ValuesOf(response->bias())[2 * kSk], lowest);  // query 5 sees itself
    mask->set_fully_masked_row(v1::FULLY_MASKED_ROW_ZEROS);
    response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ValuesOf(response->bias())[0], 0);
    EXPECT_EQ(ValuesOf(response->bias())[2 * kSk], lowest);
  }
}

// BLOOM's position_mask moves keys and does not hide them; the mask compares the geometry's positions.
TEST(Bias, PositionMaskMovesKeys) {
  v1::GenerateBiasRequest request = Request(v1::ALIBI_FORM_BLOOM);
  const std::vector<uint8_t> valid = {0, 0, 1, 1, 0, 1, 1};
  *request.mutable_method()->mutable_alibi()->mutable_position_mask() = MakeTensor(DType::kBOOL, {1, kSk}, valid);
  const std::vector<double> moved = {0, 0, 0, 1, 0, 2, 3};
  const Positions2 key = [&](int64_t, int64_t n) { return moved[n]; };
  ExpectBias(request, {1, kH, kSq, kSk}, Expected(v1::ALIBI_FORM_BLOOM, 1, 0, kH, kCached, key));

  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fill_value(-1);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  ExpectBias(request, {1, kH, kSq, kSk},
             Expected(
                 v1::ALIBI_FORM_BLOOM, 1, 0, kH, kCached, key,
                 [](int64_t, double i, double, int64_t k) { return static_cast<double>(k) <= i; }, -1));
}

// The mask is the request's, so that it goes with a model's settings, too.
TEST(Bias, PositionMaskGoesWithAModel) {
  v1::GenerateBiasRequest by_settings = Request(v1::ALIBI_FORM_BLOOM);
  by_settings.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  v1::GenerateBiasRequest beside = by_settings, by_model = by_settings;
  const v1::Tensor mask = MakeTensor(DType::kBOOL, {1, kSk}, std::vector<uint8_t>{0, 0, 1, 1, 0, 1, 1});
  *by_settings.mutable_method()->mutable_alibi()->mutable_position_mask() = mask;
  *beside.mutable_method()->mutable_position_mask() = mask;
  *by_model.mutable_method()->mutable_position_mask() = mask;
  by_model.mutable_method()->mutable_model()->set_config_json(
      absl::StrCat("{\"model_type\": \"bloom\", \"n_head\": ", kH, "}"));
  const auto expected = Call(by_settings);
  ASSERT_THAT(expected, IsOk());
  for (const auto& request : {beside, by_model}) {
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(answer->bias().data(), expected->bias().data());
    EXPECT_EQ(answer->info().plan_fingerprint(), expected->info().plan_fingerprint());
  }
  *by_model.mutable_method()->mutable_position_mask() = MakeTensor(DType::kBOOL, {1, 2}, std::vector<uint8_t>{0, 1});
  EXPECT_THAT(Call(by_model), IsInvalid("MISMATCH", "method.position_mask.shape"));
  by_model.mutable_method()->mutable_model()->set_config_json(R"({"model_type": "mpt", "n_heads": 4})");
  EXPECT_THAT(Call(by_model), IsInvalid("NOT_READ", "method.position_mask"));
  *by_settings.mutable_method()->mutable_position_mask() = mask;
  EXPECT_THAT(Call(by_settings), IsInvalid("CONFLICT", "method.position_mask"));
}

// Cell (i, j) of the dense form is entry j - i + Sq - 1 of the compact one, or entry j if only the key counts.
TEST(Bias, CompactIsDenseGathered) {
  for (v1::AlibiForm form : kForms) {
    SCOPED_TRACE(v1::AlibiForm_Name(form));
    v1::GenerateBiasRequest request = Request(form);
    const auto dense = Call(request);
    request.set_form(v1::BIAS_FORM_COMPACT);
    const auto compact = Call(request);
    ASSERT_THAT(dense, IsOk());
    ASSERT_THAT(compact, IsOk());
    const bool key_only = form == v1::ALIBI_FORM_BLOOM || form == v1::ALIBI_FORM_MPT;
    const int64_t width = key_only ? kSk : kSq + kSk - 1;
    EXPECT_EQ(ShapeOf(compact->bias()),
              key_only ? (std::vector<int64_t>{kH, 1, kSk}) : (std::vector<int64_t>{kH, kSq + kSk - 1}));
    const std::vector<double> d = ValuesOf(dense->bias()), c = ValuesOf(compact->bias());
    for (int64_t h = 0; h < kH; ++h) {
      for (int64_t i = 0; i < kSq; ++i) {
        for (int64_t j = 0; j < kSk; ++j) {
          ASSERT_EQ(d[(h * kSq + i) * kSk + j], c[h * width + (key_only ? j : j - i + kSq - 1)]);
        }
      }
    }
  }
}

// Many queries in one call, whose rows share values, equal one call per query: masked, for some of the heads, and at
// the largest positions.
TEST(Bias, ManyQueriesAreEachAlone) {
  constexpr int64_t kQueries = 9, kKeys = 35, kLast = int64_t{1} << 53;
  for (v1::AlibiForm form : kForms) {
    for (const int64_t offset : {int64_t{0}, kKeys - kQueries, kLast - kQueries + 1, kLast - 7}) {
      for (const bool masked : {false, true}) {
        SCOPED_TRACE(testing::Message() << v1::AlibiForm_Name(form) << " offset " << offset << " masked " << masked);
        v1::GenerateBiasRequest request = Request(form);
        request.mutable_geometry()->set_query_length(kQueries);
        request.mutable_geometry()->set_key_length(kKeys);
        request.mutable_geometry()->set_query_offset(offset);
        request.mutable_geometry()->set_head_start(1);
        request.mutable_geometry()->set_head_count(3);
        if (masked) {
          request.mutable_mask()->set_causal(true);
          request.mutable_mask()->set_fill_value(-1e4);
          request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
        }
        const auto together = Call(request);
        ASSERT_THAT(together, IsOk());
        const std::vector<double> values = ValuesOf(together->bias());
        request.mutable_geometry()->set_query_length(1);
        for (int64_t i = 0; i < kQueries && offset + i <= kLast; ++i) {
          request.mutable_geometry()->set_query_offset(offset + i);
          const auto alone = Call(request);
          ASSERT_THAT(alone, IsOk());
          const std::vector<double> row = ValuesOf(alone->bias());
          for (int64_t h = 0; h < 3; ++h) {
            for (int64_t j = 0; j < kKeys; ++j) {
              ASSERT_EQ(values[(h * kQueries + i) * kKeys + j], row[h * kKeys + j]) << h << " " << i << " " << j;
            }
          }
        }
      }
    }
  }
}

TEST(Bias, LearnedLogarithmsAndSlopesPerBatchRow) {
  v1::GenerateBiasRequest request = Request(v1::ALIBI_FORM_SYMMETRIC);
  std::vector<double> logs;
  for (double slope : kSlopes) logs.push_back(std::log(slope));
  *request.mutable_method()->mutable_alibi()->mutable_log_slopes() = MakeTensor(DType::kFP64, {kH}, logs);
  ExpectBias(request, {kH, kSq, kSk}, Expected(v1::ALIBI_FORM_SYMMETRIC, 1, 0, kH, kCached, kFromZero));

  std::vector<double> slopes = kSlopes;
  slopes.insert(slopes.end(), kSlopes.begin(), kSlopes.end());
  *request.mutable_method()->mutable_alibi()->mutable_given() = MakeTensor(DType::kFP32, {kB, kH}, slopes);
  ExpectBias(request, {kB, kH, kSq, kSk}, Expected(v1::ALIBI_FORM_SYMMETRIC, kB, 0, kH, kCached, kFromZero));
}

// AddBias rounds the float32 sum once, or rounds the bias to the scores' type first.
TEST(AddBias, BothRoundings) {
  constexpr uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal(0, 3);
  std::vector<double> scores;
  for (int64_t n = 0; n < kB * kH * kSq * kSk; ++n) scores.push_back(normal(random));
  const v1::GenerateBiasRequest plain = Request(v1::ALIBI_FORM_CAUSAL);
  const std::vector<double> bias = Expected(v1::ALIBI_FORM_CAUSAL, kB, 0, kH, kCached, kFromZero);
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER, v1::PRECISION_PRESET_VLLM}) {
      SCOPED_TRACE(std::string(Name(dtype)) + " " + v1::PrecisionPreset_Name(preset));
      v1::AddBiasRequest request;
      *request.mutable_method() = plain.method();
      *request.mutable_geometry() = plain.geometry();
      request.mutable_geometry()->clear_query_length();
      request.mutable_geometry()->clear_key_length();
      request.mutable_precision()->set_preset(preset);
      *request.mutable_scores() = MakeTensor(dtype, {kB, kH, kSq, kSk}, scores);
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      const std::vector<double> rounded_scores = ValuesOf(request.scores()), sums = ValuesOf(response->scores());
      for (size_t n = 0; n < sums.size(); ++n) {
        const bool first = preset != v1::PRECISION_PRESET_EXACT;
        const auto b = static_cast<float>(first ? reference::Round(dtype, bias[n]) : bias[n]);
        const float sum = static_cast<float>(rounded_scores[n]) + b;
        ASSERT_EQ(sums[n], reference::Round(dtype, sum)) << n << ", seed " << kSeed;
      }
    }
  }
}

// Key positions by batch row: queries at offsets have the same values as queries with explicit positions.
TEST(Bias, OffsetQueriesBesideKeysByBatchRow) {
  for (const int64_t batch : {1, 2, 3}) {
    for (const char* name : {"kerple", "sandwich", "fire", "t5"}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(batch));
      v1::GenerateBiasRequest request;
      *request.mutable_method() = FullMethod(name);
      std::vector<double> keys, offsets, positions;
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t j = 0; j < 4; ++j) keys.push_back(static_cast<double>(1000 * b + j));
        offsets.push_back(static_cast<double>(3 * b));
        for (int64_t i = 0; i < 5; ++i) positions.push_back(static_cast<double>(3 * b + i));
      }
      v1::BiasGeometry& geometry = *request.mutable_geometry();
      geometry.set_query_length(5);
      geometry.set_key_length(4);
      *geometry.mutable_key_positions() = MakeTensor(DType::kFP64, {batch, 4}, keys);
      request.set_form(v1::BIAS_FORM_DENSE);
      request.set_dtype(v1::DATA_TYPE_FP32);
      *geometry.mutable_query_positions() = MakeTensor(DType::kFP64, {batch, 5}, positions);
      const auto expected = Call(request);
      ASSERT_THAT(expected, IsOk());
      geometry.mutable_query_offsets()->mutable_offset()->Assign(offsets.begin(), offsets.end());
      const auto by_offsets = Call(request);
      ASSERT_THAT(by_offsets, IsOk());
      EXPECT_TRUE(by_offsets->bias().data() == expected->bias().data());

      std::vector<double> from_two;
      for (int64_t i = 0; i < 5; ++i) from_two.push_back(static_cast<double>(2 + i));
      *geometry.mutable_query_positions() = MakeTensor(DType::kFP64, {5}, from_two);
      const auto shared = Call(request);
      geometry.set_query_offset(2);
      const auto by_offset = Call(request);
      ASSERT_THAT(shared, IsOk());
      ASSERT_THAT(by_offset, IsOk());
      EXPECT_TRUE(by_offset->bias().data() == shared->bias().data());
    }
  }
}

}  // namespace
}  // namespace posenc::bias_test
