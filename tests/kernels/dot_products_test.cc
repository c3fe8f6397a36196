// Products of rows with columns against two loops, bit for bit, on every target.
#include "posenc/kernels/dot_products.h"

#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"

namespace posenc {
namespace {

struct Shape {
  size_t rows, stride, depth, width;
};

// The definition. The product is exact, so fusing it with the sum changes nothing.
Block Expected(const Shape& shape, const std::vector<float>& rows, const std::vector<double>& columns) {
  Block out(shape.rows * shape.width * sizeof(double));
  auto* sums = reinterpret_cast<double*>(out.data());
  for (size_t r = 0; r < shape.rows; ++r) {
    for (size_t i = 0; i < shape.width; ++i) {
      double sum = 0;
      for (size_t c = 0; c < shape.depth; ++c) {
        sum += static_cast<double>(rows[r * shape.stride + c]) * columns[c * shape.width + i];
      }
      sums[r * shape.width + i] = sum;
    }
  }
  MakeNansEqual(DType::kFP64, out.data(), shape.rows * shape.width);
  return out;
}

Block Computed(const Shape& shape, const std::vector<float>& rows, const std::vector<double>& columns) {
  Block out(shape.rows * shape.width * sizeof(double));
  ComputeDotProducts(DotProducts{.rows = rows.data(),
                                 .row_stride = shape.stride,
                                 .row_count = shape.rows,
                                 .depth = shape.depth,
                                 .columns = columns.data(),
                                 .width = shape.width,
                                 .out = reinterpret_cast<double*>(out.data())});
  MakeNansEqual(DType::kFP64, out.data(), shape.rows * shape.width);
  return out;
}

// Ordinary numbers, whose sums depend on their order, or arbitrary float32 numbers.
std::vector<float> Draw(std::mt19937_64& random, size_t count, bool any) {
  std::vector<float> values(count);
  if (any) FillWithElements(DType::kFP32, random, reinterpret_cast<std::byte*>(values.data()), count);
  std::uniform_real_distribution<float> uniform(-8, 8);
  for (float& value : values) value = any ? value : uniform(random);
  return values;
}

TEST(DotProducts, EveryWidthAndDepth) {
  std::mt19937_64 random(PrintedSeed(20261121));
  for (size_t width = 1; width <= 70; ++width) {
    for (size_t depth = width % OneIn(); depth <= 130; depth += OneIn()) {
      // Row counts and gaps vary with width and depth.
      const size_t turn = 7 * width + depth;
      const Shape shape{.rows = turn % 10, .stride = depth + turn / 10 % 4, .depth = depth, .width = width};
      const bool any = turn % 3 == 0;
      // The array ends with the last row.
      const size_t size = shape.rows == 0 ? 0 : (shape.rows - 1) * shape.stride + depth;
      const std::vector<float> rows = Draw(random, size, any), narrow = Draw(random, depth * width, any);
      const std::vector<double> columns(narrow.begin(), narrow.end());
      const Block expected = Expected(shape, rows, columns);
      OnEveryTarget([&] {
        SCOPED_TRACE(testing::Message() << shape.rows << " rows, depth " << depth << ", width " << width);
        ExpectSameBytes(expected, Computed(shape, rows, columns));
      });
    }
  }
}

// Only this order gives 1: 2^60 absorbs the first 1 but not the second.
TEST(DotProducts, SumsInOrder) {
  const std::vector<float> row = {0x1p60f, 1, -0x1p60f, 1};
  const std::vector<double> columns(4 * 9, 1.0);
  OnEveryTarget([&] {
    std::vector<double> out(9);
    ComputeDotProducts(DotProducts{row.data(), 4, 1, 4, columns.data(), 9, out.data()});
    EXPECT_EQ(out, std::vector<double>(9, 1.0));  // 2^60 + 1 rounds to 2^60
  });
}

}  // namespace
}  // namespace posenc
