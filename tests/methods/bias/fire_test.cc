// FIRE's biases against its oracle and the paper's numbers.
#include <gtest/gtest.h>

#include <random>

#include "tests/reference/bias_recipe.h"
#include "tests/service/call.h"

namespace posenc::fire_test {
namespace {

using Exact = reference::Number<300>;

v1::GenerateBiasRequest FireRequest(const v1::Fire& fire, const std::vector<double>& queries,
                                    const std::vector<double>& keys) {
  v1::GenerateBiasRequest request;
  *request.mutable_method()->mutable_fire() = fire;
  auto& geometry = *request.mutable_geometry();
  geometry.set_query_length(static_cast<int64_t>(queries.size()));
  geometry.set_key_length(static_cast<int64_t>(keys.size()));
  *geometry.mutable_query_positions() = MakeTensor(DType::kFP64, {geometry.query_length()}, queries);
  *geometry.mutable_key_positions() = MakeTensor(DType::kFP64, {geometry.key_length()}, keys);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

// A network whose first head returns its input.
TEST(Fire, PublishedInputs) {
  v1::Fire fire;
  fire.set_c(0.1);
  fire.set_threshold(512);
  *fire.mutable_hidden_weight() = MakeTensor(DType::kFP32, {1}, {1});
  *fire.mutable_hidden_bias() = MakeTensor(DType::kFP32, {1}, {0});
  *fire.mutable_output_weight() = MakeTensor(DType::kFP32, {2, 1}, {1, -2});
  *fire.mutable_output_bias() = MakeTensor(DType::kFP32, {2}, {0, 1});
  const auto answer = Call(FireRequest(fire, {3, 1000}, {1, 10}));
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> bias = ValuesOf(answer->bias());
  EXPECT_NEAR(bias[0], .046098, 5e-7);  // (3, 1)
  EXPECT_NEAR(bias[3], .997844, 5e-7);  // (1000, 10)
  EXPECT_NEAR(bias[7], 1 - 2 * .997844, 1e-6);
}

// A network that returns its input. For tiny c, ln(1 + c n) is c n to float32's precision, and more than float64 leaves
// of 1 + c n; so the bias of distance n is n / threshold, as mpmath computes it with 6000 bits.
TEST(Fire, InputsOfATinyScale) {
  for (double c : {1e-40, 1e-45, -1e-47, 1e-60, 1e-300, 2e-308}) {
    v1::Fire fire;
    fire.set_c(c);
    fire.set_threshold(8);
    fire.set_epsilon(0);
    *fire.mutable_hidden_weight() = MakeTensor(DType::kFP32, {1}, {1});
    *fire.mutable_hidden_bias() = MakeTensor(DType::kFP32, {1}, {0});
    *fire.mutable_output_weight() = MakeTensor(DType::kFP32, {1, 1}, {1});
    *fire.mutable_output_bias() = MakeTensor(DType::kFP32, {1}, {0});
    const auto answer = Call(FireRequest(fire, {5}, {0, 1, 2, 3, 4, 5}));
    ASSERT_THAT(answer, IsOk());
    EXPECT_THAT(ValuesOf(answer->bias()), testing::ElementsAre(.625, .5, .375, .25, .125, 0)) << c;
  }
}

TEST(Fire, EqualsItsOracle) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto draw = [&](int64_t count) {
    std::vector<double> values;
    for (int64_t n = 0; n < count; ++n) values.push_back(uniform(random));
    return values;
  };
  const std::vector<double> slopes = draw(32), shifts = draw(32), weights = draw(3 * 32), biases = draw(3);
  v1::Fire fire;
  fire.set_c(-0.3);
  fire.set_threshold(17.5);
  fire.set_epsilon(1e-3);
  *fire.mutable_hidden_weight() = MakeTensor(DType::kFP32, {32}, slopes);
  *fire.mutable_hidden_bias() = MakeTensor(DType::kFP32, {32}, shifts);
  *fire.mutable_output_weight() = MakeTensor(DType::kFP32, {3, 32}, weights);
  *fire.mutable_output_bias() = MakeTensor(DType::kFP32, {3}, biases);
  const std::vector<double> queries = {0, 1, 16, 17, 18, 19, 400}, keys = {400, 3, 0, 18, 17};
  v1::GenerateBiasRequest request = FireRequest(fire, queries, keys);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> bias = ValuesOf(answer->bias());
  size_t n = 0;
  for (size_t h = 0; h < 3; ++h) {
    for (double i : queries) {
      for (double j : keys) {
        const auto x = reference::FireInput<Exact>(-0.3, 17.5, 1e-3, static_cast<int64_t>(i), static_cast<int64_t>(j));
        double sum = biases[h];
        for (size_t unit = 0; unit < 32; ++unit) {
          sum += weights[h * 32 + unit] * std::max(slopes[unit] * x.ToDouble() + shifts[unit], 0.0);
        }
        EXPECT_NEAR(bias[n++], sum, 0x1p-24 * std::abs(sum) + 1e-13) << h << " " << i << " " << j;
      }
    }
  }
  request.mutable_geometry()->set_head_start(1);
  request.mutable_geometry()->set_head_count(1);
  const auto head = Call(request);
  ASSERT_THAT(head, IsOk());
  EXPECT_EQ(ValuesOf(head->bias()), std::vector<double>(bias.begin() + 35, bias.begin() + 70));
}

// More keys than are computed at once have the same biases as few.
TEST(Fire, LongRows) {
  v1::Fire fire;
  fire.set_c(0.1);
  fire.set_threshold(5);
  *fire.mutable_hidden_weight() = MakeTensor(DType::kFP32, {2}, {1, -3});
  *fire.mutable_hidden_bias() = MakeTensor(DType::kFP32, {2}, {0.5, 2});
  *fire.mutable_output_weight() = MakeTensor(DType::kFP32, {1, 2}, {1, -2});
  *fire.mutable_output_bias() = MakeTensor(DType::kFP32, {1}, {0.25});
  const std::vector<double> few = {0, 1, 2, 3, 4, 5, 6};
  std::vector<double> many;
  for (size_t n = 0; n < 9000; ++n) many.push_back(few[n % few.size()]);
  const auto expected = Call(FireRequest(fire, {30}, few)), answer = Call(FireRequest(fire, {30}, many));
  ASSERT_THAT(expected, IsOk());
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> of_few = ValuesOf(expected->bias()), of_many = ValuesOf(answer->bias());
  for (size_t n = 0; n < many.size(); ++n) ASSERT_EQ(of_many[n], of_few[n % few.size()]) << n;
}

}  // namespace
}  // namespace posenc::fire_test
