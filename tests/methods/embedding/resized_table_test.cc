// Resized learned tables: every byte of the exact values against MPFR, from the definitions in embedding.proto, and
// what a caller can rely on.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/reference/embedding_recipe.h"
#include "tests/service/call.h"

namespace posenc::resized_table_test {
namespace {

using reference::Real;
using E = v1::GenerateEmbeddingRequest;

Real Absolute(const Real& x) { return x < Real(0) ? Real(0) - x : x; }

// Keys' kernel, or the triangle.
Real Kernel(const Real& signed_distance, bool cubic, double a) {
  const Real x = Absolute(signed_distance);
  if (!cubic) return x < Real(1) ? Real(1) - x : Real(0);
  if (x < Real(1)) return Real(a + 2) * x * x * x - Real(a + 3) * x * x + Real(1);
  if (x < Real(2)) return Real(a) * x * x * x - Real(5 * a) * x * x + Real(8 * a) * x - Real(4 * a);
  return Real(0);
}

// Weight of each cell of an axis in the target's cell `index`.
std::vector<Real> Weights(const v1::TableResize& resize, int axis, int64_t index) {
  const int64_t source = resize.source(axis), target = resize.target(axis);
  std::vector<Real> weights(source, Real(0));
  if (resize.mode() == v1::RESIZE_MODE_NEAREST) {
    weights[index * source / target] = Real(1);
    return weights;
  }
  const bool cubic = resize.mode() == v1::RESIZE_MODE_BICUBIC;
  Real step = Real(source) / Real(target);
  if (resize.scale_factor_size() > 0) step = Real(1) / Real(resize.scale_factor(axis));
  if (resize.align_corners()) step = target == 1 ? Real(0) : Real(source - 1) / Real(target - 1);
  const Real half(0.5), center = step * (Real(index) + half);
  if (resize.antialias()) {
    const Real stretch = step < Real(1) ? Real(1) : step;
    Real total(0);
    for (int64_t n = 0; n < source; ++n) {
      weights[n] = Kernel((Real(n) + half - center) / stretch, cubic, -0.5);
      total = total + weights[n];
    }
    for (Real& weight : weights) weight = weight / total;
    return weights;
  }
  const Real x = resize.align_corners() ? step * Real(index) : center - half;
  for (int64_t n = -4; n < source + 4; ++n) {
    if (resize.padding() == v1::RESIZE_PADDING_ZEROS && (n < 0 || n >= source)) continue;
    Real& weight = weights[std::clamp<int64_t>(n, 0, source - 1)];
    weight = weight + Kernel(x - Real(n), cubic, -0.75);
  }
  return weights;
}

// The request's rows of the target's cells, row by row, each element rounded once.
std::vector<double> Expected(const E& request, DType dtype) {
  const v1::TableResize& resize = request.learned().resize();
  const std::vector<double> table = ValuesOf(request.learned().table());
  const int64_t width = request.learned().table().shape(1), before = resize.rows_before();
  std::vector<double> rows;
  for (int64_t y = 0; y < resize.target(0); ++y) {
    const std::vector<Real> row_weights = Weights(resize, 0, y);
    for (int64_t x = 0; x < resize.target(1); ++x) {
      const std::vector<Real> column_weights = Weights(resize, 1, x);
      for (int64_t n = 0; n < width; ++n) {
        Real sum(0);
        for (int64_t i = 0; i < resize.source(0); ++i) {
          for (int64_t j = 0; j < resize.source(1); ++j) {
            const double value = table[(before + i * resize.source(1) + j) * width + n];
            sum = sum + row_weights[i] * column_weights[j] * Real(value);
          }
        }
        if (request.learned().has_scale()) sum = sum * Real(request.learned().scale());
        // A sum that is a tie differs from it by errors of 2^-600; 300 bits have none of them.
        rows.push_back(reference::RoundOnce(dtype, reference::Number<300>(sum)));
      }
    }
  }
  return rows;
}

E Request(DType dtype, int64_t rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(rows * width);
  for (double& value : values) value = normal(random);
  E request;
  *request.mutable_learned()->mutable_table() = MakeTensor(dtype, {rows, width}, values);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

v1::TableResize& Resize(E& request, std::vector<int64_t> source, std::vector<int64_t> target, v1::ResizeMode mode) {
  v1::TableResize& resize = *request.mutable_learned()->mutable_resize();
  resize.mutable_source()->Assign(source.begin(), source.end());
  resize.mutable_target()->Assign(target.begin(), target.end());
  resize.set_mode(mode);
  return resize;
}

std::vector<double> Values(const E& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? ValuesOf(response->embedding()) : std::vector<double>();
}

void ExpectExact(E request) {
  for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16, DType::kFP64}) {
    request.set_dtype(Wire(dtype));
    const std::vector<double> actual = Values(request), expected = Expected(request, dtype);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t n = 0; n < actual.size(); ++n) {
      ASSERT_EQ(actual[n], expected[n]) << std::hexfloat << actual[n] << ", not " << expected[n] << ": " << Name(dtype)
                                        << ", element " << n << " of " << request.learned().resize().ShortDebugString()
                                        << ", table of " << v1::DataType_Name(request.learned().table().dtype());
    }
  }
}

TEST(ResizedTable, EveryModeIsExact) {
  uint32_t seed = 0;
  for (const DType type : {DType::kFP32, DType::kBF16, DType::kFP64}) {
    for (const auto& target : {std::vector<int64_t>{8, 3}, {5, 6}, {1, 7}, {2, 12}}) {
      for (const auto mode : {v1::RESIZE_MODE_NEAREST, v1::RESIZE_MODE_BILINEAR, v1::RESIZE_MODE_BICUBIC}) {
        for (int options = 0; options < (mode == v1::RESIZE_MODE_NEAREST ? 1 : 6); ++options) {
          E request = Request(type, 4 * 6, 3, ++seed);
          v1::TableResize& resize = Resize(request, {4, 6}, target, mode);
          resize.set_align_corners(options == 1 || options == 4);
          resize.set_antialias(options >= 3 && options < 5);
          if (options == 2) resize.set_padding(v1::RESIZE_PADDING_ZEROS);
          if (options == 5) request.mutable_learned()->set_scale(0.7);
          ExpectExact(request);
        }
      }
    }
  }
}

TEST(ResizedTable, ScaleFactorsReplaceTheLengths) {
  E request = Request(DType::kFP32, 9, 2, 7);
  v1::TableResize& resize = Resize(request, {3, 3}, {5, 4}, v1::RESIZE_MODE_BICUBIC);
  resize.add_scale_factor(5.1 / 3);
  resize.add_scale_factor(4.1 / 3);
  ExpectExact(request);
}

// Twice as many cells: weights are fractions of 16 and 256, and many sums are ties.
TEST(ResizedTable, TiesGoToEven) {
  E request = Request(DType::kFP32, 16, 64, 9);
  Resize(request, {4, 4}, {8, 8}, v1::RESIZE_MODE_BILINEAR);
  ExpectExact(request);
  request.mutable_learned()->mutable_resize()->set_mode(v1::RESIZE_MODE_BICUBIC);
  ExpectExact(request);
}

// torch.nn.functional.interpolate([0, 1, 2, 3], 8, mode="linear").
TEST(ResizedTable, OneAxis) {
  E request;
  *request.mutable_learned()->mutable_table() = MakeTensor(DType::kFP32, {4, 1}, {0, 1, 2, 3});
  request.set_dtype(v1::DATA_TYPE_FP32);
  Resize(request, {}, {8}, v1::RESIZE_MODE_LINEAR);
  EXPECT_EQ(Values(request), (std::vector<double>{0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}));
  Resize(request, {}, {7}, v1::RESIZE_MODE_LINEAR).set_align_corners(true);
  EXPECT_EQ(Values(request), (std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST(ResizedTable, TheSameSizeIsTheTable) {
  for (const auto mode : {v1::RESIZE_MODE_NEAREST, v1::RESIZE_MODE_BILINEAR, v1::RESIZE_MODE_BICUBIC}) {
    for (const bool antialias : {false, true}) {
      E request = Request(DType::kFP32, 12, 5, 3);
      const std::vector<double> table = ValuesOf(request.learned().table());
      Resize(request, {3, 4}, {3, 4}, mode).set_antialias(antialias && mode != v1::RESIZE_MODE_NEAREST);
      EXPECT_EQ(Values(request), table);
      request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
      EXPECT_EQ(Values(request), table);
    }
  }
}

TEST(ResizedTable, OtherRowsAreKeptAndPositionsChoose) {
  E request = Request(DType::kFP32, 1 + 4 + 2, 1, 5);
  const std::vector<double> table = ValuesOf(request.learned().table());
  v1::TableResize& resize = Resize(request, {2, 2}, {3, 2}, v1::RESIZE_MODE_NEAREST);
  resize.set_rows_before(1);
  resize.set_rows_after(2);
  const std::vector<double> all = {table[0], table[1], table[2], table[1], table[2],
                                   table[3], table[4], table[5], table[6]};
  EXPECT_EQ(Values(request), all);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {3}, {7, 0, 5});
  EXPECT_EQ(Values(request), (std::vector<double>{all[7], all[0], all[5]}));
  request.mutable_learned()->set_offset(1);
  EXPECT_EQ(Values(request), (std::vector<double>{all[8], all[1], all[6]}));
  request.clear_positions();
  EXPECT_EQ(Values(request), all);
}

TEST(ResizedTable, BlocksOrderTheCells) {
  E request = Request(DType::kFP32, 16, 2, 8);
  v1::TableResize& resize = Resize(request, {}, {4, 6}, v1::RESIZE_MODE_BILINEAR);
  const std::vector<double> by_rows = Values(request);
  resize.set_spatial_merge_size(2);
  const std::vector<double> in_blocks = Values(request);
  std::vector<double> expected;
  for (int64_t block = 0; block < 6; ++block) {
    for (int64_t within = 0; within < 4; ++within) {
      const int64_t y = block / 3 * 2 + within / 2, x = block % 3 * 2 + within % 2;
      expected.insert(expected.end(), by_rows.begin() + (y * 6 + x) * 2, by_rows.begin() + (y * 6 + x) * 2 + 2);
    }
  }
  EXPECT_EQ(in_blocks, expected);
}

// The operations round at other places; none is further from the real values than a few units of float32.
TEST(ResizedTable, OperationsAreRoundedFormsOfTheSameNumbers) {
  for (const auto operations : {v1::RESIZE_OPERATIONS_INTERPOLATE, v1::RESIZE_OPERATIONS_GATHER,
                                v1::RESIZE_OPERATIONS_EMBEDDING_BAG, v1::RESIZE_OPERATIONS_GRID_SAMPLE}) {
    for (const auto mode : {v1::RESIZE_MODE_BILINEAR, v1::RESIZE_MODE_BICUBIC}) {
      E request = Request(DType::kFP32, 14 * 14, 8, 11);
      Resize(request, {14, 14}, {10, 23}, mode).set_operations(operations);
      const std::vector<double> exact = Values(request);
      request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
      const std::vector<double> rounded = Values(request);
      ASSERT_EQ(exact.size(), rounded.size());
      EXPECT_NE(exact, rounded);
      for (size_t n = 0; n < exact.size(); ++n) EXPECT_NEAR(exact[n], rounded[n], 2e-5);
    }
  }
}

}  // namespace
}  // namespace posenc::resized_table_test
