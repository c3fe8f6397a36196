// Forget gates: every cell against the exact sum of its gates, rounded once.
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/mpfr_number.h"
#include "tests/service/call.h"

namespace posenc::forget_gate_test {
namespace {

using Exact = reference::Number<700>;  // holds any sum of float32 numbers

// float32 log gates whose exponents are -spread .. 3; some are zero.
std::vector<double> Gates(size_t count, int spread) {
  std::mt19937_64 random(91);
  std::vector<double> gates;
  for (size_t n = 0; n < count; ++n) {
    const int exponent = 3 - static_cast<int>(random() % static_cast<uint64_t>(spread + 4));
    const auto mantissa = static_cast<float>(1 + 0x1p-23 * static_cast<double>(random() % (1 << 23)));
    gates.push_back(random() % 16 == 0 ? 0.0 : -std::ldexp(static_cast<double>(mantissa), exponent));
  }
  return gates;
}

v1::GenerateBiasRequest Request(std::vector<int64_t> shape, const std::vector<double>& gates, int64_t queries) {
  v1::GenerateBiasRequest request;
  *request.mutable_method()->mutable_forget_gate()->mutable_log_gates() =
      MakeTensor(DType::kFP32, std::move(shape), gates);
  request.mutable_geometry()->set_query_length(queries);
  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fill_value(7);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

// The sum over j < l <= i, added from the query backwards; 7 if the key is hidden.
double Expected(const double* gates, int64_t i, int64_t j, int64_t sequence_begin = 0) {
  if (j > i || j < sequence_begin) return 7;
  Exact sum(0);
  for (int64_t l = i; l > j; --l) sum = sum + Exact(gates[l]);
  return sum.RoundedTo<24>();
}

class ForgetGate : public testing::TestWithParam<int> {};

TEST_P(ForgetGate, EqualsTheExactSums) {
  constexpr int64_t kHeads = 3, kKeys = 70, kQueries = 9;
  const std::vector<double> gates = Gates(kHeads * kKeys, GetParam());
  const auto answer = Call(Request({kHeads, kKeys}, gates, kQueries));
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> bias = ValuesOf(answer->bias());
  ASSERT_EQ(bias.size(), static_cast<size_t>(kHeads * kQueries * kKeys));
  for (int64_t h = 0, n = 0; h < kHeads; ++h) {
    for (int64_t i = kKeys - kQueries; i < kKeys; ++i) {
      for (int64_t j = 0; j < kKeys; ++j, ++n) {
        const double expected = Expected(&gates[h * kKeys], i, j);
        ASSERT_EQ(bias[n], expected) << h << " " << i << " " << j;
        ASSERT_EQ(std::signbit(bias[n]), std::signbit(expected));
      }
    }
  }
}

// Sums that need 64 bits, 128 bits, and more.
INSTANTIATE_TEST_SUITE_P(Spreads, ForgetGate, testing::Values(1, 20, 60, 120));

TEST(ForgetGate, BatchPositionsAndHeads) {
  constexpr int64_t kBatch = 2, kHeads = 3, kKeys = 12;
  const std::vector<double> gates = Gates(kBatch * kHeads * kKeys, 9);
  v1::GenerateBiasRequest request = Request({kBatch, kHeads, kKeys}, gates, 2);
  const std::vector<double> positions = {3, 11, 0, 7};
  *request.mutable_geometry()->mutable_query_positions() = MakeTensor(DType::kFP64, {kBatch, 2}, positions);
  request.mutable_geometry()->set_head_start(1);
  request.mutable_geometry()->set_head_count(2);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> bias = ValuesOf(answer->bias());
  for (int64_t b = 0, n = 0; b < kBatch; ++b) {
    for (int64_t h = 1; h < kHeads; ++h) {
      for (int64_t q = 0; q < 2; ++q) {
        for (int64_t j = 0; j < kKeys; ++j, ++n) {
          const auto i = static_cast<int64_t>(positions[b * 2 + q]);
          ASSERT_EQ(bias[n], Expected(&gates[(b * kHeads + h) * kKeys], i, j)) << b << " " << h << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(ForgetGate, BeginsAnewWithEachSequence) {
  constexpr int64_t kKeys = 10;
  const std::vector<double> gates = Gates(kKeys, 5);
  v1::GenerateBiasRequest request = Request({1, kKeys}, gates, kKeys);
  *request.mutable_method()->mutable_forget_gate()->mutable_cu_seqlens() =
      MakeTensor<int64_t>(DType::kINT64, {4}, {0, 4, 4, 10});
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> bias = ValuesOf(answer->bias());
  for (int64_t i = 0, n = 0; i < kKeys; ++i) {
    for (int64_t j = 0; j < kKeys; ++j, ++n) {
      EXPECT_EQ(bias[n], Expected(gates.data(), i, j, i < 4 ? 0 : 4)) << i << " " << j;
    }
  }
}

TEST(ForgetGate, IsAddedToScores) {
  const std::vector<double> gates = {-1, -0.5, -0.25};
  v1::AddBiasRequest request;
  *request.mutable_method()->mutable_forget_gate()->mutable_log_gates() = MakeTensor(DType::kBF16, {1, 3}, gates);
  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fill_value(-9);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  *request.mutable_scores() = MakeTensor(DType::kBF16, {1, 1, 2, 3}, std::vector<double>{1, 1, 1, 2, 2, 2});
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(ValuesOf(answer->scores()), (std::vector<double>{0.5, 1, -9, 1.25, 1.75, 2}));
}

TEST(ForgetGate, RefusesWhatItCannotCompute) {
  const v1::GenerateBiasRequest good = Request({1, 3}, {-1, -2, -3}, 2);
  ASSERT_THAT(Call(good), IsOk());
  const auto refusal = [&](void (*change)(v1::GenerateBiasRequest&)) {
    v1::GenerateBiasRequest request = good;
    change(request);
    const absl::Status status = Call(request).status();
    return DetailsOf(status).reason + " " + DetailsOf(status).field;
  };
  using R = v1::GenerateBiasRequest;
  EXPECT_EQ(refusal([](R& r) { r.clear_mask(); }), "CONFLICT mask.causal");
  EXPECT_EQ(refusal([](R& r) { r.mutable_mask()->set_causal(false); }), "CONFLICT mask.causal");
  EXPECT_EQ(refusal([](R& r) { r.set_form(v1::BIAS_FORM_COMPACT); }), "CONFLICT form");
  EXPECT_EQ(refusal([](R& r) { r.set_form(v1::BIAS_FORM_INDEX), r.set_dtype(v1::DATA_TYPE_INT32); }), "CONFLICT form");
  EXPECT_EQ(refusal([](R& r) { r.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32); }),
            "UNSUPPORTED precision.frequencies");
  EXPECT_EQ(refusal([](R& r) { r.mutable_geometry()->set_query_length(4); }), "OUT_OF_RANGE geometry.query_length");
  EXPECT_EQ(refusal([](R& r) { r.mutable_geometry()->set_key_length(4); }), "MISMATCH geometry.key_length");
  EXPECT_EQ(refusal([](R& r) { r.mutable_geometry()->set_query_offset(2); }), "OUT_OF_RANGE geometry.query_positions");
  const auto gates = [](R& r) -> v1::ForgetGate& { return *r.mutable_method()->mutable_forget_gate(); };
  EXPECT_EQ(refusal([](R& r) { r.mutable_method()->mutable_forget_gate()->clear_log_gates(); }),
            "MISSING method.forget_gate.log_gates");
  R request = good;
  *gates(request).mutable_log_gates() = MakeTensor(DType::kFP32, {1, 3}, {-1, 0.9, -3});
  EXPECT_EQ(DetailsOf(Call(request).status()).field, "method.forget_gate.log_gates[1]");
  *gates(request).mutable_log_gates() = MakeTensor(DType::kFP32, {3}, {-1, -2, -3});
  EXPECT_EQ(DetailsOf(Call(request).status()).field, "method.forget_gate.log_gates.shape");
  request = good;
  *gates(request).mutable_cu_seqlens() = MakeTensor<int64_t>(DType::kINT64, {2}, {0, 2});
  EXPECT_EQ(DetailsOf(Call(request).status()).field, "method.forget_gate.cu_seqlens[1]");
}

}  // namespace
}  // namespace posenc::forget_gate_test
