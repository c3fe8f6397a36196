// Every byte of timesteps, grids, Fourier features and learned tables against MPFR, from the definitions.
#include <gtest/gtest.h>

#include <numbers>
#include <optional>
#include <random>

#include "tests/kernels/elements.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/embedding_recipe.h"
#include "tests/service/call.h"

namespace posenc::embedding_oracle_test {
namespace {

using reference::EmbeddingRecipe;
using reference::Number;
using reference::Real;

using Exact = EmbeddingRecipe<Real, Real>;
using Float64 = EmbeddingRecipe<Number<53>, Number<53>>;
using Float32 = EmbeddingRecipe<Number<24>, Number<53>>;

constexpr DType kTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};

// Requests every type under every arithmetic; `row(recipe, n)` gives the expected row n.
template <class RowOf>
void ExpectRows(v1::GenerateEmbeddingRequest request, int64_t rows, const RowOf& row) {
  const auto compare = [&](auto recipe, v1::FrequencyArithmetic arithmetic) {
    request.mutable_precision()->mutable_axes()->set_frequencies(arithmetic);
    for (DType dtype : kTypes) {
      SCOPED_TRACE(testing::Message() << v1::FrequencyArithmetic_Name(arithmetic) << " " << Name(dtype));
      request.set_dtype(Wire(dtype));
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      std::vector<double> expected;
      for (int64_t n = 0; n < rows; ++n) {
        for (const auto& x : row(recipe, n)) expected.push_back(x == 0.0 ? 0.0 : reference::RoundOnce(dtype, x));
      }
      const std::vector<double> actual = ValuesOf(response->embedding());
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t n = 0; n < actual.size(); ++n) {
        ASSERT_TRUE(actual[n] == expected[n] && std::signbit(actual[n]) == std::signbit(expected[n]))
            << actual[n] << ", not " << expected[n] << ": element " << n % (actual.size() / rows) << " of row "
            << n / (actual.size() / rows);
      }
    }
  };
  auto* axes = request.mutable_precision()->mutable_axes();
  axes->set_table_dtype(v1::TABLE_DTYPE_FLOAT32);
  axes->set_rounding(v1::ROUNDING_ONCE);
  compare(Exact{}, v1::FREQUENCY_ARITHMETIC_EXACT);
  compare(Float64{}, v1::FREQUENCY_ARITHMETIC_FLOAT64);
  compare(Float32{}, v1::FREQUENCY_ARITHMETIC_FLOAT32);
}

TEST(TimestepOracle, EveryTypeAndArithmetic) {
  const std::vector<double> timesteps = {0, 1, 0.5, 17.25, -3.7, 999, 1e-5, 1048576};
  const struct {
    int dim;
    double max_period, shift, scale;
    bool flip;
  } cases[] = {{1, 10000, 1, 1, false},    {2, 10000, 0, 1, true},   {4, 10000, 1, 1, false},    {9, 500, 0.5, 1, true},
               {64, 10000, 0, 1000, true}, {320, 10000, 0, 1, true}, {6, 0.25, 4.5, -2.7, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << "dim " << c.dim << ", scale " << c.scale);
    v1::GenerateEmbeddingRequest request;
    v1::Timestep& message = *request.mutable_timestep();
    message.set_dim(c.dim);
    if (c.max_period != 10000) message.set_max_period(c.max_period);
    if (c.shift != 1) message.set_downscale_freq_shift(c.shift);
    if (c.scale != 1) message.set_scale(c.scale);
    message.set_flip_sin_to_cos(c.flip);
    *request.mutable_positions()->mutable_ids() =
        MakeTensor(DType::kFP64, {static_cast<int64_t>(timesteps.size())}, timesteps);
    ExpectRows(request, timesteps.size(), [&](auto recipe, int64_t n) {
      return decltype(recipe)::Timestep(timesteps[n], c.dim, c.max_period, c.shift, c.scale, c.flip);
    });
  }
}

v1::GenerateEmbeddingRequest GridRequest(v1::GridConvention convention, int dim, int height, int width) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_grid()->set_convention(convention);
  request.mutable_grid()->set_dim(dim);
  request.mutable_grid()->set_height(height);
  request.mutable_grid()->set_width(width);
  return request;
}

TEST(GridOracle, MaeAndBigVision) {
  for (auto convention : {v1::GRID_CONVENTION_MAE, v1::GRID_CONVENTION_BIG_VISION}) {
    for (int dim : {8, 44}) {
      SCOPED_TRACE(testing::Message() << v1::GridConvention_Name(convention) << " " << dim);
      auto request = GridRequest(convention, dim, 3, 5);
      request.mutable_grid()->set_extra_tokens(2);
      if (dim == 44) request.mutable_grid()->set_temperature(123.5);
      const double temperature = dim == 44 ? 123.5 : 10000;
      const int spread = convention == v1::GRID_CONVENTION_MAE ? dim / 4 : dim / 4 - 1;
      ExpectRows(request, 2 + 15, [&](auto recipe, int64_t n) {
        typename decltype(recipe)::Row row;
        const int cell = static_cast<int>(n) - 2;
        if (cell < 0) return typename decltype(recipe)::Row(dim);
        recipe.AppendAxis(cell % 5, dim / 4, spread, temperature, 1, 1, 1, row);
        recipe.AppendAxis(cell / 5, dim / 4, spread, temperature, 1, 1, 1, row);
        return row;
      });
    }
  }
}

TEST(GridOracle, Diffusers) {
  auto request = GridRequest(v1::GRID_CONVENTION_DIFFUSERS, 24, 3, 7);
  request.mutable_grid()->set_base_size(5);
  request.mutable_grid()->set_interpolation_scale(1.7);
  ExpectRows(request, 21, [&](auto recipe, int64_t n) {
    typename decltype(recipe)::Row row;
    recipe.AppendAxis(static_cast<int>(n % 7), 6, 6, 10000, 5, 7, 1.7, row);
    recipe.AppendAxis(static_cast<int>(n / 7), 6, 6, 10000, 5, 3, 1.7, row);
    return row;
  });
}

// Stable Diffusion 3's grid is cut from the middle of a larger one, here of 9 x 9, from row 3 and column 1 on.
TEST(GridOracle, DiffusersCutFromALargerOne) {
  auto request = GridRequest(v1::GRID_CONVENTION_DIFFUSERS, 24, 3, 6);
  request.mutable_grid()->set_base_size(4);
  request.mutable_grid()->set_pos_embed_max_size(9);
  ExpectRows(request, 18, [&](auto recipe, int64_t n) {
    typename decltype(recipe)::Row row;
    recipe.AppendAxis(1 + static_cast<int>(n % 6), 6, 6, 10000, 4, 9, 1, row);
    recipe.AppendAxis(3 + static_cast<int>(n / 6), 6, 6, 10000, 4, 9, 1, row);
    return row;
  });
}

TEST(GridOracle, DiffusersInThreeDimensions) {
  auto request = GridRequest(v1::GRID_CONVENTION_DIFFUSERS, 32, 2, 3);
  request.mutable_grid()->set_frames(4);
  request.mutable_grid()->set_interpolation_scale(1.875);
  request.mutable_grid()->set_temporal_interpolation_scale(1.3);
  request.mutable_grid()->set_extra_tokens(1);
  ExpectRows(request, 1 + 24, [&](auto recipe, int64_t n) {
    typename decltype(recipe)::Row row;
    const int cell = static_cast<int>(n) - 1;
    if (cell < 0) return typename decltype(recipe)::Row(32);
    recipe.AppendAxis(cell / 6, 4, 4, 10000, 1, 1, 1.3, row);
    recipe.AppendAxis(cell % 3, 6, 6, 10000, 1, 1, 1.875, row);
    recipe.AppendAxis(cell / 3 % 2, 6, 6, 10000, 1, 1, 1.875, row);
    return row;
  });
}

TEST(GridOracle, RowsFirst) {
  auto request = GridRequest(v1::GRID_CONVENTION_MAE, 16, 3, 5);
  request.mutable_grid()->set_rows_first(true);
  ExpectRows(request, 15, [&](auto recipe, int64_t n) {
    typename decltype(recipe)::Row row;
    recipe.AppendAxis(static_cast<int>(n / 5), 4, 4, 10000, 1, 1, 1, row);
    recipe.AppendAxis(static_cast<int>(n % 5), 4, 4, 10000, 1, 1, 1, row);
    return row;
  });
}

TEST(GridOracle, Detr) {
  const struct {
    int dim;
    double temperature;
    std::optional<bool> normalize;
    std::optional<double> scale, offset;
  } cases[] = {{8, 10000, {}, {}, {}},      {40, 20, true, {}, -0.5},    {12, 10000, false, {}, {}},
               {4, 0.5, true, -3.7, 12.25}, {8, 10000, true, 1e-3, 1e5}, {256, 10000, {}, {}, {}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << "dim " << c.dim << ", temperature " << c.temperature);
    auto request = GridRequest(v1::GRID_CONVENTION_DETR, c.dim, 3, 5);
    v1::Grid& grid = *request.mutable_grid();
    if (c.temperature != 10000) grid.set_temperature(c.temperature);
    if (c.normalize) grid.set_normalize(*c.normalize);
    if (c.scale) grid.set_scale(*c.scale);
    if (c.offset) grid.set_offset(*c.offset);
    if (c.dim == 40) grid.set_extra_tokens(1);
    const int before = c.dim == 40 ? 1 : 0;
    ExpectRows(request, 15 + before, [&](auto recipe, int64_t n) {
      const int cell = static_cast<int>(n) - before;
      if (cell < 0) return typename decltype(recipe)::Row(c.dim);
      const bool normalize = c.normalize.value_or(true);
      const double scale = c.scale.value_or(2 * std::numbers::pi), offset = c.offset.value_or(0);
      typename decltype(recipe)::Row row;
      recipe.AppendDetrAxis(cell / 5, c.dim / 4, 3, c.temperature, normalize, scale, offset, row);
      recipe.AppendDetrAxis(cell % 5, c.dim / 4, 5, c.temperature, normalize, scale, offset, row);
      return row;
    });
  }
}

void ExpectFourier(const std::vector<std::vector<double>>& points, const std::vector<std::vector<double>>& b) {
  const auto flat = [](const std::vector<std::vector<double>>& rows) {
    std::vector<double> values;
    for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
    return values;
  };
  const auto n = static_cast<int64_t>(points[0].size());
  v1::GenerateEmbeddingRequest request;
  *request.mutable_fourier()->mutable_frequencies() =
      MakeTensor(DType::kFP64, {static_cast<int64_t>(b.size()), n}, flat(b));
  *request.mutable_fourier()->mutable_points() =
      MakeTensor(DType::kFP64, {static_cast<int64_t>(points.size()), n}, flat(points));
  ExpectRows(request, points.size(), [&](auto recipe, int64_t s) { return recipe.Fourier(points[s], b); });
}

TEST(FourierOracle, RandomPoints) {
  std::mt19937_64 random(PrintedSeed(20061073));
  std::normal_distribution<double> normal;
  for (int n : {1, 2, 3, 9}) {
    std::vector<std::vector<double>> points(12, std::vector<double>(n)), b(1 + 149 / OneIn(), std::vector<double>(n));
    for (auto& row : points) {
      for (double& x : row) x = normal(random);
    }
    for (size_t i = 0; i < b.size(); ++i) {
      for (double& x : b[i]) x = std::ldexp(normal(random), static_cast<int>(i % 40) - 10);
    }
    ExpectFourier(points, b);
  }
}

// Whole and fractional turns, and sums that cancel.
TEST(FourierOracle, ExactTurnsAndCancellation) {
  ExpectFourier({{0, 0}, {1, 0}, {-0.25, 0}, {0.125, 1}, {3, -3}, {0x1p60, 0x1p-60}, {-0x1p-40, 0x1p-90}},
                {{0, 0},
                 {1, 1},
                 {0.25, -0.0},
                 {-7, 0.125},
                 {1 / 3.0, 1 / 3.0},
                 {0x1p-30, 0x1p20},
                 {0x1p50, 0x1p50 + 0.25},
                 {1e-3, 1e3}});
  // These sums lose all but a few bits in float64, however carefully they are computed.
  ExpectFourier({{1 / 3.0, 1, 1 / 3.0}, {0.7, 1, 0.7}}, {{3e12, 0x1.3c0ca428c59fbp-60, -3e12}, {1e14, 1e-17, -1e14}});
}

// The limits of float64: turns of which only the last bits count, and sines that underflow.
TEST(FourierOracle, LargestAndSmallest) {
  v1::GenerateEmbeddingRequest request;
  *request.mutable_fourier()->mutable_frequencies() =
      MakeTensor(DType::kFP64, {4, 2}, {0x1p1000, 1, 0x1p1023, 0, 0x1p-500, 0x1p-500, -0x1p-1000, 0});
  *request.mutable_fourier()->mutable_points() = MakeTensor(DType::kFP64, {1, 2}, {0x1p-1001, 0x1p-40});
  for (DType dtype : kTypes) {
    SCOPED_TRACE(Name(dtype));
    request.set_dtype(Wire(dtype));
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const auto sine = [dtype](double turns) {
      return reference::RoundOnce(dtype, Sin(Real(2) * Real::Pi() * Real(turns)));
    };
    // The turns are 1/2 + 2^-40, 2^22, slightly above 2^-540, and -2^-2001.
    const std::vector<double> expected = {sine(-0x1p-40), 0.0, sine(0x1p-540), -0.0, -1, 1, 1, 1};
    EXPECT_EQ(response->embedding().data(), Pack(dtype, expected));
  }
}

// Points whose sine is next to a rounding boundary of the type, nearer than float64 can tell.
TEST(FourierOracle, NextToRoundingBoundaries) {
  std::mt19937_64 random(PrintedSeed(7));
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    std::vector<std::vector<double>> points;
    for (int n = 0; n < 200; ++n) {
      const double value = reference::Round(dtype, std::ldexp(static_cast<double>(random() >> 11), -53));
      const int digits = dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
      const double boundary = value + std::ldexp(1.0, std::max(std::ilogb(value), -14) - digits);
      if (boundary < 1) points.push_back({std::asin(boundary) / (2 * M_PI)});
    }
    ExpectFourier(points, {{1}, {-1}, {5}});
  }
}

// A row is copied, or the real product is rounded once; the other arithmetics round the product to their type first.
TEST(LearnedOracle, EveryTypeAndArithmetic) {
  std::mt19937_64 random(PrintedSeed(512));
  const int64_t rows = 7, dim = 37;
  for (DType from : kTypes) {
    for (std::optional<double> scale : {std::optional<double>(), std::optional<double>(1 / 3.0)}) {
      SCOPED_TRACE(testing::Message() << "table " << Name(from) << (scale ? " scaled" : ""));
      std::vector<double> table(rows * dim);
      for (double& x : table) x = reference::Round(from, std::ldexp(static_cast<double>(random() >> 11), -52) - 1);
      v1::GenerateEmbeddingRequest request;
      *request.mutable_learned()->mutable_table() = MakeTensor(from, {rows, dim}, table);
      request.mutable_learned()->set_offset(2);
      if (scale) request.mutable_learned()->set_scale(*scale);
      const std::vector<int64_t> at = {0, -2, 4, 4, -1};
      *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kINT64, {5}, at);
      ExpectRows(request, 5, [&](auto recipe, int64_t n) {
        using T = typename decltype(recipe)::Row::value_type;
        std::vector<Real> row;
        for (int64_t e = 0; e < dim; ++e) {
          const double x = table[(at[n] + 2) * dim + e];
          row.push_back(scale ? Real(T(x) * T(*scale)) : Real(x));
        }
        return row;
      });
    }
  }
}

}  // namespace
}  // namespace posenc::embedding_oracle_test
