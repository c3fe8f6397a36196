// Common properties of absolute encodings: addition and row positions; and worked numbers of each.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/kernels/elements.h"
#include "tests/service/call.h"

namespace posenc::embedding_methods_test {
namespace {

using E = v1::GenerateEmbeddingRequest;
using testing::DoubleNear;
using testing::Pointwise;

std::vector<double> Values(const E& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? ValuesOf(response->embedding()) : std::vector<double>();
}

E TimestepRequest(int dim, const std::vector<double>& t) {
  E request;
  request.mutable_timestep()->set_dim(dim);
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {static_cast<int64_t>(t.size())}, t);
  request.set_dtype(v1::DATA_TYPE_FP64);
  return request;
}

E GridRequest(v1::GridConvention convention, int dim, int height, int width) {
  E request;
  request.mutable_grid()->set_convention(convention);
  request.mutable_grid()->set_dim(dim);
  request.mutable_grid()->set_height(height);
  request.mutable_grid()->set_width(width);
  request.set_dtype(v1::DATA_TYPE_FP64);
  return request;
}

E LearnedRequest() {
  E request;
  *request.mutable_learned()->mutable_table() = MakeTensor(DType::kFP32, {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  request.mutable_positions()->set_offset(1);
  request.set_count(3);
  request.set_dtype(v1::DATA_TYPE_FP64);
  return request;
}

E FourierRequest() {
  E request;
  *request.mutable_fourier()->mutable_frequencies() = MakeTensor(DType::kFP64, {2, 2}, {1, 0.5, 0, 2});
  *request.mutable_fourier()->mutable_points() = MakeTensor(DType::kFP32, {3, 2}, {0, 0, 0.25, 0, 0.5, 0.125});
  request.set_dtype(v1::DATA_TYPE_FP64);
  return request;
}

TEST(WorkedEmbeddings, TimestepAtOne) {
  E request = TimestepRequest(4, {1});
  EXPECT_THAT(Values(request), Pointwise(DoubleNear(5e-7), {.841471, .0001, .540302, 1.0}));
  request.mutable_timestep()->set_downscale_freq_shift(0);
  request.mutable_timestep()->set_flip_sin_to_cos(true);
  EXPECT_THAT(Values(request), Pointwise(DoubleNear(5e-7), {.540302, .99995, .841471, .01}));
}

// FLUX multiplies its timestep by 1000 first; over the real numbers that equals a scale.
TEST(WorkedEmbeddings, ScaleOfATimestep) {
  E before = TimestepRequest(256, {0.0625 * 1000, 0.5 * 1000});
  E scaled = TimestepRequest(256, {0.0625, 0.5});
  scaled.mutable_timestep()->set_scale(1000);
  for (E* request : {&before, &scaled}) request->mutable_timestep()->set_downscale_freq_shift(0);
  EXPECT_THAT(Values(scaled), Pointwise(DoubleNear(1e-12), Values(before)));
}

// The cell at row 1, column 2: x = 2 is in the first half under every convention.
TEST(WorkedEmbeddings, ColumnsBeforeRows) {
  const auto cell = [](const E& request) {
    const std::vector<double> all = Values(request);
    return std::vector<double>(all.begin() + (1 * 3 + 2) * 8, all.begin() + (1 * 3 + 3) * 8);
  };
  EXPECT_THAT(cell(GridRequest(v1::GRID_CONVENTION_MAE, 8, 2, 3)),
              Pointwise(DoubleNear(1e-15), {std::sin(2), std::sin(.02), std::cos(2), std::cos(.02),  //
                                            std::sin(1), std::sin(.01), std::cos(1), std::cos(.01)}));
  EXPECT_THAT(cell(GridRequest(v1::GRID_CONVENTION_BIG_VISION, 8, 2, 3)),
              Pointwise(DoubleNear(1e-15), {std::sin(2), std::sin(2e-4), std::cos(2), std::cos(2e-4),  //
                                            std::sin(1), std::sin(1e-4), std::cos(1), std::cos(1e-4)}));
  const double x = 2 * 16 / 3.0, y = 8;
  EXPECT_THAT(cell(GridRequest(v1::GRID_CONVENTION_DIFFUSERS, 8, 2, 3)),
              Pointwise(DoubleNear(1e-14), {std::sin(x), std::sin(x / 100), std::cos(x), std::cos(x / 100),  //
                                            std::sin(y), std::sin(y / 100), std::cos(y), std::cos(y / 100)}));
}

TEST(WorkedEmbeddings, LearnedRowsWithOffset) {
  E request = LearnedRequest();
  EXPECT_EQ(Values(request), (std::vector<double>{10, 11, 20, 21, 30, 31}));
  request.mutable_learned()->set_offset(-1);
  request.mutable_learned()->set_scale(0.5);
  EXPECT_EQ(Values(request), (std::vector<double>{0, 0.5, 5, 5.5, 10, 10.5}));
}

TEST(WorkedEmbeddings, FourierQuarterTurns) {
  EXPECT_EQ(Values(FourierRequest()), (std::vector<double>{0, 0, 1, 1,  //
                                                           1, 0, 0, 1,  //
                                                           -0x1.87de2a6aea963p-2, 1, -0x1.d906bcf328d46p-1, 0}));
}

// p_a . p_b of timesteps depends on a - b only, as for any sinusoidal encoding.
TEST(EmbeddingProperties, DotProductsDependOnTheDistanceOnly) {
  const std::vector<double> p = Values(TimestepRequest(64, {100.25, 97, 13.25, 10}));
  double far = 0, near = 0;
  for (int e = 0; e < 64; ++e) far += p[e] * p[64 + e], near += p[128 + e] * p[192 + e];
  EXPECT_NEAR(far, near, 1e-12);
}

const std::function<E()> kRequests[] = {
    [] {
      return TimestepRequest(6, {0.5, 17, 3});
    },
    [] { return GridRequest(v1::GRID_CONVENTION_MAE, 8, 3, 1); },
    LearnedRequest,
    FourierRequest,
};

// x + encoding, for every element of every copy: the float32 sum is rounded once, or the encoding is rounded first.
TEST(AddTo, EveryMethodTypeAndBatch) {
  std::mt19937_64 random(PrintedSeed(99));
  for (const auto& make : kRequests) {
    for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
      E request = make();
      request.set_dtype(v1::DATA_TYPE_FP32);
      const auto wide = Call(request);
      ASSERT_THAT(wide, IsOk());
      const std::vector<double> encoding = ValuesOf(wide->embedding());
      const int64_t dim = ShapeOf(wide->embedding())[1], copies = 2 * 5, row = 3 * dim;
      std::string x(copies * row * SizeOf(dtype), '\0');
      FillWithElements(dtype, random, reinterpret_cast<std::byte*>(x.data()), copies * row);
      request.set_dtype(v1::DATA_TYPE_UNSPECIFIED);
      v1::Tensor& add_to = *request.mutable_add_to();
      add_to.set_dtype(Wire(dtype));
      for (int64_t size : {int64_t{2}, int64_t{5}, int64_t{3}, dim}) add_to.add_shape(size);
      add_to.set_data(x);
      for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER, v1::PRECISION_PRESET_VLLM}) {
        request.mutable_precision()->set_preset(preset);
        E alone = request;
        alone.clear_add_to();
        alone.set_dtype(v1::DATA_TYPE_FP32);
        const std::vector<double> rows = Values(alone);
        const bool first = preset != v1::PRECISION_PRESET_EXACT;
        const std::vector<double> values = Unpack(dtype, x);
        std::vector<double> sums;
        for (int64_t n = 0; n < copies * row; ++n) {
          const double e = first ? reference::Round(dtype, rows[n % row]) : rows[n % row];
          sums.push_back(static_cast<float>(static_cast<float>(values[n]) + static_cast<float>(e)));
        }
        const auto response = Call(request);
        ASSERT_THAT(response, IsOk());
        EXPECT_EQ(ShapeOf(response->embedding()), (std::vector<int64_t>{2, 5, 3, dim}));
        Block expected(x.size()), actual(x.size());
        Pack(dtype, sums).copy(reinterpret_cast<char*>(expected.data()), x.size());
        response->embedding().data().copy(reinterpret_cast<char*>(actual.data()), x.size());
        for (Block* block : {&expected, &actual}) MakeNansEqual(dtype, block->data(), copies * row);
        ExpectSameBytes(expected, actual);
      }
    }
  }
}

// Batched ids give each sequence its own rows.
TEST(AddTo, BatchedPositions) {
  E request = LearnedRequest();
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kINT32, {2, 1}, std::vector<int32_t>{3, 1});
  request.clear_count();
  request.clear_dtype();
  *request.mutable_add_to() = MakeTensor(DType::kFP32, {2, 1, 2}, {100, 200, 300, 400});
  EXPECT_EQ(Values(request), (std::vector<double>{130, 231, 310, 411}));
}

TEST(AddTo, EmptyTensors) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3, 2}, {2, 0, 3, 2}}) {
    E request = LearnedRequest();
    request.clear_dtype();
    *request.mutable_add_to() = MakeTensor(DType::kBF16, shape, std::vector<double>());
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ShapeOf(response->embedding()), shape);
  }
}

// Everything that changes a row changes the fingerprint.
TEST(EmbeddingFingerprint, DiffersWithEverySetting) {
  std::set<std::string> seen;
  size_t requests = 0;
  const auto see = [&](E request, const std::function<void(E&)>& change) {
    change(request);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    seen.insert(response->info().plan_fingerprint());
    ++requests;
  };
  for (const auto& make : kRequests) {
    see(make(), [](E&) {});
    see(make(), [](E& r) { r.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32); });
  }
  const E timestep = TimestepRequest(6, {0.5}), grid = GridRequest(v1::GRID_CONVENTION_DIFFUSERS, 16, 2, 3);
  see(timestep, [](E& r) { r.mutable_timestep()->set_dim(7); });
  see(timestep, [](E& r) { r.mutable_timestep()->set_max_period(100); });
  see(timestep, [](E& r) { r.mutable_timestep()->set_downscale_freq_shift(0); });
  see(timestep, [](E& r) { r.mutable_timestep()->set_scale(2); });
  see(timestep, [](E& r) { r.mutable_timestep()->set_flip_sin_to_cos(true); });
  see(grid, [](E&) {});
  see(grid, [](E& r) { r.mutable_grid()->set_convention(v1::GRID_CONVENTION_MAE); });
  see(grid, [](E& r) { r.mutable_grid()->set_convention(v1::GRID_CONVENTION_BIG_VISION); });
  see(grid, [](E& r) { r.mutable_grid()->set_height(3); });
  see(grid, [](E& r) { r.mutable_grid()->set_width(2); });
  see(grid, [](E& r) { r.mutable_grid()->set_frames(2); });
  see(grid, [](E& r) { r.mutable_grid()->set_base_size(8); });
  see(grid, [](E& r) { r.mutable_grid()->set_interpolation_scale(2); });
  see(grid, [](E& r) { r.mutable_grid()->set_pos_embed_max_size(9); });
  see(grid, [](E& r) { r.mutable_grid()->set_temperature(100); });
  see(grid, [](E& r) { r.mutable_grid()->set_extra_tokens(1); });
  see(LearnedRequest(), [](E& r) { r.mutable_learned()->set_offset(-1); });
  see(LearnedRequest(), [](E& r) { r.mutable_learned()->set_scale(2); });
  see(LearnedRequest(), [](E& r) { (*r.mutable_learned()->mutable_table()->mutable_data())[5] ^= 1; });
  see(FourierRequest(), [](E& r) {
    *r.mutable_fourier()->mutable_frequencies() = MakeTensor(DType::kFP64, {2, 2}, {1, 0.5, 0, 3});
  });
  EXPECT_EQ(seen.size(), requests);
}

}  // namespace
}  // namespace posenc::embedding_methods_test
