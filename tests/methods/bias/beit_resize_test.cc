// BEiT's tables of windows that are no squares, which transformers resizes, where sums are ties or cancel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/reference/bias_recipe.h"
#include "tests/service/call.h"

namespace posenc::beit_resize_test {
namespace {

// A window of 2 x 3 whose table, 3 rows of 5, is torch's bilinear resize of 5 rows of 3.
v1::BiasMethod ResizedBeit(const std::vector<double>& table) {
  v1::BiasMethod method;
  method.mutable_beit()->set_window_height(2);
  method.mutable_beit()->set_window_width(3);
  method.mutable_beit()->set_table(v1::BEIT_TABLE_TRANSFORMERS);
  const auto heads = static_cast<int64_t>(table.size()) / 18;
  *method.mutable_table() = MakeTensor(DType::kFP32, {heads, 18}, table);
  method.set_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
  return method;
}

std::vector<double> Biases(const std::vector<double>& table) {
  v1::GenerateBiasRequest request;
  *request.mutable_method() = ResizedBeit(table);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? ValuesOf(response->bias()) : std::vector<double>{};
}

// The biases of a head by row of the resized table.
std::vector<double> ResizedRows(const double* bias) {
  std::vector<double> rows(15);
  for (int64_t query = 1; query <= 6; ++query) {
    for (int64_t key = 1; key <= 6; ++key) rows[reference::BeitRow(2, 3, query, key)] = bias[7 * query + key];
  }
  return rows;
}

// Source samples of pixel n of `to` among `from`, with weights of 2 * to in all.
struct Sample {
  Sample(int64_t n, int64_t from, int64_t to)
      : first(std::max<int64_t>(from * (2 * n + 1) - to, 0) / (2 * to)),
        second(std::min(first + 1, from - 1)),
        of_second(std::max<int64_t>(from * (2 * n + 1) - to, 0) % (2 * to)),
        of_first(2 * to - of_second) {}
  int64_t first, second, of_second, of_first;
};

// Values between 2^22 and 2^24: multiples of 1/2, and from 2^23 on whole numbers, as float32 there are. Integers of 64
// bits decide how the sums of values times weights, which are 60 in all, are rounded.
TEST(Beit, ResizesTiesToEven) {
  constexpr int64_t kHeads = 400;
  std::mt19937 random(20240617);
  std::vector<double> table(kHeads * 18);
  for (double& value : table) {
    const auto bits = static_cast<double>((1 << 23) + random() % (1 << 23));
    value = random() % 2 == 0 ? bits : bits / 2;
  }
  const std::vector<double> biases = Biases(table);
  int ties = 0;
  for (int64_t h = 0; h < kHeads; ++h) {
    const std::vector<double> rows = ResizedRows(biases.data() + h * 49);
    for (int64_t row = 0; row < 15; ++row) {
      const Sample y(row / 5, 5, 3), x(row % 5, 3, 5);
      const auto across = [&](int64_t line) {
        const double* values = table.data() + h * 18 + line * 3;
        return x.of_first * static_cast<int64_t>(2 * values[x.first]) +
               x.of_second * static_cast<int64_t>(2 * values[x.second]);
      };
      const int64_t halves = y.of_first * across(y.first) + y.of_second * across(y.second);  // times 60
      const int64_t unit = halves < int64_t{60} << 24 ? 60 : 120;
      const int64_t low = halves / unit, twice_rest = halves % unit * 2;
      const bool up = twice_rest > unit || (twice_rest == unit && low % 2 == 1);
      ties += twice_rest == unit;
      ASSERT_EQ(rows[row], static_cast<double>((low + (up ? 1 : 0)) * unit / 60) / 2)
          << "head " << h << ", row " << row;
    }
  }
  EXPECT_GT(ties, 50);
}

// Row 2 of the result is 2/3 of table[1] plus 1/3 of table[4], which cancel.
TEST(Beit, ResizesValuesThatCancel) {
  std::vector<double> table(18, 0);
  table[1] = 0x1p126;
  table[4] = -0x1p127;
  EXPECT_EQ(ResizedRows(Biases(table).data())[2], 0);
}

}  // namespace
}  // namespace posenc::beit_resize_test
