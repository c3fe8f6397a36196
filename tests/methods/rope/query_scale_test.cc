// Factors of q against MPFR, and which parameters each function takes.
#include "posenc/methods/rope/query_scale.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/reference/query_scale_recipe.h"
#include "tests/service/call.h"

namespace posenc::query_scale_test {
namespace {

using Real = reference::Number<200>;

QueryScale Llama4(double attn_scale = 0.1, double floor_scale = 8192) {
  return {.function = QueryScaleFunction::kLlama4, .attn_scale = attn_scale, .floor_scale = floor_scale};
}
QueryScale Ministral3(double beta = 0.1, double length = 16384) {
  return {.function = QueryScaleFunction::kMinistral3,
          .llama_4_scaling_beta = beta,
          .original_max_position_embeddings = length};
}
QueryScale Beam() { return {.function = QueryScaleFunction::kBeam}; }
QueryScale Logn(double length = 2048) { return {.function = QueryScaleFunction::kLogn, .seq_length = length}; }
QueryScale Inkling(double alpha = 0.1, double n_floor = 128000) {
  return {.function = QueryScaleFunction::kInkling, .log_scaling_alpha = alpha, .log_scaling_n_floor = n_floor};
}

std::vector<QueryScale> All() {
  return {Llama4(), Llama4(0.37, 100), Llama4(0, 8192), Llama4(2, 1.5),     Ministral3(),   Ministral3(1000, 7), Beam(),
          Logn(),   Logn(2.5),         Inkling(),       Inkling(0.37, 2.5), Inkling(0, 100)};
}

std::vector<double> Positions() {
  std::vector<double> positions = {0,    1,    6,    7,     98,    99,     100, 2047,  2048,
                                   8190, 8191, 8192, 16383, 16384, 131072, 1e7, 0x1p53};
  std::mt19937_64 random(20261129);
  for (int n = 0; n < 200; ++n) positions.push_back(static_cast<double>(random() >> (11 + random() % 52)));
  for (int n = 0; n < 50; ++n) positions.push_back(std::ldexp(static_cast<double>(random() >> 11), -40));
  return positions;
}

TEST(QueryScale, ExactFactorsAreRoundedOnce) {
  const std::vector<double> positions = Positions();
  for (const QueryScale& scale : All()) {
    ASSERT_THAT(Check(scale), IsOk());
    const auto factors = QueryFactors(Frequencies::kExact, scale, positions);
    const auto products = QueryFactors(Frequencies::kExact, scale, positions, 1.2);
    const auto reciprocals = QueryFactors(Frequencies::kExact, scale, positions, 1, true);
    for (size_t n = 0; n < positions.size(); ++n) {
      const Real factor = reference::QueryFactor<Real>(scale, positions[n]);
      EXPECT_EQ(factors[n], factor.ToDouble()) << positions[n];
      EXPECT_EQ(products[n], (Real(1.2) * factor).ToDouble()) << positions[n];
      EXPECT_EQ(reciprocals[n], (Real(1.0) / factor).ToDouble()) << positions[n];
    }
  }
}

// 24 digits after every operation: torch's float32, where the parameters are float32 numbers.
TEST(QueryScale, Float32FactorsAreRoundedAfterEachOperation) {
  using Float = reference::Number<24>;
  std::vector<double> positions;
  for (double position : Positions()) positions.push_back(std::floor(position));
  for (QueryScale scale : {Llama4(0.125, 8192), Ministral3(0.125, 16384), Llama4(0.125, 100), Ministral3(0.125, 7),
                           Inkling(0.125, 128000), Inkling(0.125, 100)}) {
    const auto factors = QueryFactors(Frequencies::kFloat32, scale, positions);
    for (size_t n = 0; n < positions.size(); ++n) {
      EXPECT_EQ(factors[n], reference::QueryFactor<Float>(scale, positions[n]).ToDouble()) << positions[n];
    }
  }
}

// The numbers of the models' own code, transformers 5.24 with torch 2.15.0: position, float32 factor.
TEST(QueryScale, WorkedNumbers) {
  const auto at = [](const QueryScale& scale, double position) {
    return static_cast<float>(QueryFactors(Frequencies::kExact, scale, {position})[0]);
  };
  EXPECT_EQ(at(Llama4(), 8190), 1);
  EXPECT_FLOAT_EQ(at(Llama4(), 8191), 1.0693147F);
  EXPECT_FLOAT_EQ(at(Llama4(), 131072), 1.2833213F);
  EXPECT_EQ(at(Ministral3(), 16383), 1);
  EXPECT_FLOAT_EQ(at(Ministral3(), 16384), 1.0693147F);
  EXPECT_EQ(at(Inkling(), 127999), 1);
  EXPECT_FLOAT_EQ(at(Inkling(), 262143), 1.0716864F);
  EXPECT_EQ(at(Logn(), 2047), 1);
  EXPECT_GT(at(Logn(), 2048), 1);
}

TEST(QueryScale, FirstScaledPosition) {
  for (const QueryScale& scale : All()) {
    const auto first = FirstScaledPosition(scale);
    if (scale.attn_scale == 0.0 || scale.log_scaling_alpha == 0.0) {
      EXPECT_FALSE(first);
      continue;
    }
    ASSERT_TRUE(first);
    EXPECT_NE(QueryFactors(Frequencies::kExact, scale, {*first})[0], 1);
    if (*first == 0) continue;
    EXPECT_EQ(QueryFactors(Frequencies::kExact, scale, {*first - 1})[0], 1);
  }
}

TEST(QueryScale, TakesTheFunctionsOwnParameters) {
  EXPECT_THAT(Check({.function = QueryScaleFunction::kLlama4, .attn_scale = 0.1}), IsInvalid("MISSING", "floor_scale"));
  EXPECT_THAT(Check(Llama4(-0.1)), IsInvalid("OUT_OF_RANGE", "attn_scale"));
  EXPECT_THAT(Check(Llama4(std::nan(""))), IsInvalid("OUT_OF_RANGE", "attn_scale"));
  EXPECT_THAT(Check(Llama4(0.1, 0.5)), IsInvalid("OUT_OF_RANGE", "floor_scale"));
  EXPECT_THAT(Check(Ministral3(1001)), IsInvalid("OUT_OF_RANGE", "llama_4_scaling_beta"));
  EXPECT_THAT(Check(Ministral3(0.1, 0x1p54)), IsInvalid("OUT_OF_RANGE", "original_max_position_embeddings"));
  EXPECT_THAT(Check(Logn(1)), IsInvalid("OUT_OF_RANGE", "seq_length"));
  EXPECT_THAT(Check(Inkling(-0.1)), IsInvalid("OUT_OF_RANGE", "log_scaling_alpha"));
  EXPECT_THAT(Check(Inkling(0.1, 0.5)), IsInvalid("OUT_OF_RANGE", "log_scaling_n_floor"));
  QueryScale both = Llama4();
  both.seq_length = 100;
  EXPECT_THAT(Check(both), IsInvalid("NOT_READ", "seq_length"));
}

}  // namespace
}  // namespace posenc::query_scale_test
