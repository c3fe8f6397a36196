// Inkling's bias against plain loops: by distance, with tau, and with the roundings of the two classes.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/every_target.h"
#include "tests/methods/relative/relative_cases.h"

namespace posenc::inkling_oracle_test {
namespace {

using reference::Dot;

// Relative states as q, and the matrix's columns as rows.
struct States : Attention {
  std::vector<Row> columns;

  explicit States(DType type, int64_t extent = 4, int64_t query_offset = 3) : Attention{.dtype = type} {
    Fill(query_offset);
    columns = DrawRows(extent, dim);
  }
  v1::RelativeScoresRequest Ask(v1::InklingScaled scaled = v1::INKLING_SCALED_UNSPECIFIED) const {
    v1::RelativeScoresRequest request = Request(false, false);
    auto& inkling = *request.mutable_method()->mutable_inkling();
    std::vector<Row> matrix(dim, Row(columns.size()));
    for (size_t n = 0; n < columns.size(); ++n) {
      for (int64_t c = 0; c < dim; ++c) matrix[c][n] = columns[n][c];
    }
    *inkling.mutable_projection() = Weight(matrix);
    if (scaled == v1::INKLING_SCALED_UNSPECIFIED) return request;
    inkling.set_log_scaling_alpha(0.25);
    inkling.set_log_scaling_n_floor(5);
    inkling.set_scaled(scaled);
    return request;
  }
  double Tau(int64_t b, int64_t i) const {
    return 1 + 0.25 * std::log(std::max(1.0, (query_positions[b * queries + i] + 1) / 5));
  }
  bool IsInside(int64_t b, int64_t i, int64_t j) const {
    const int64_t n = Distance(b, i, j);
    return n >= 0 && n < static_cast<int64_t>(columns.size());
  }
  double Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return IsInside(b, i, j) ? Dot(Q(b, h, i), columns[Distance(b, i, j)]) : 0;
  }
};

double Rounded(DType dtype, double value) { return Unpack(dtype, Pack(dtype, {value}))[0]; }

TEST(Inkling, BiasByDistance) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (int64_t extent : {1, 4, 100}) {
      for (int64_t offset : {-3, 0, 3, 50}) {
        const States s(dtype, extent, offset);
        s.Expect(Call(s.Ask()), [&](auto b, auto h, auto i, auto j) { return s.Bias(b, h, i, j); });
      }
    }
  }
}

TEST(Inkling, LayoutScaleAndScatteredPositions) {
  States s(DType::kFP32, 300);
  s.layout = v1::LAYOUT_BSHD;
  std::uniform_real_distribution<double> uniform(0, 400);
  for (auto* positions : {&s.query_positions, &s.key_positions}) {
    for (double& position : *positions) position = std::floor(uniform(s.random));
  }
  v1::RelativeScoresRequest request = s.Ask(v1::INKLING_SCALED_BIAS);
  request.set_scale(0.5);
  s.Expect(Call(request), [&](auto b, auto h, auto i, auto j) { return 0.5 * s.Tau(b, i) * s.Bias(b, h, i, j); });
}

TEST(Inkling, TilesOfManyKeys) {
  States s(DType::kFP32, 1);
  s.batch = s.heads = s.key_heads = 1;
  s.queries = 70;
  s.keys = 1200;
  s.query_positions.clear();
  s.key_positions.clear();
  s.Fill(1130);
  s.columns = s.DrawRows(1000, s.dim);
  s.Expect(Call(s.Ask()), [&](auto b, auto h, auto i, auto j) { return s.Bias(b, h, i, j); });
}

TEST(Inkling, ExactTauHasOneRounding) {
  for (v1::InklingScaled scaled : {v1::INKLING_SCALED_BIAS, v1::INKLING_SCALED_STATES}) {
    const States s(DType::kBF16);
    s.Expect(Call(s.Ask(scaled)), [&](auto b, auto h, auto i, auto j) { return s.Tau(b, i) * s.Bias(b, h, i, j); });
  }
}

// Inkling 1 rounds the bias, and then its product with tau; Inkling 2 rounds the product of r and tau, and then the
// bias.
TEST(Inkling, RoundsAsTheClasses) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (v1::InklingScaled scaled : {v1::INKLING_SCALED_BIAS, v1::INKLING_SCALED_STATES}) {
      States s(dtype);
      v1::RelativeScoresRequest request = s.Ask(scaled);
      request.set_dtype(Wire(dtype));
      request.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      const std::vector<double> ours = ValuesOf(answer->scores());
      s.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, int64_t n) {
        const float ratio = static_cast<float>(s.query_positions[b * s.queries + i] + 1) / 5.0F;
        const float tau = 1.0F + 0.25F * static_cast<float>(std::log(static_cast<double>(std::max(1.0F, ratio))));
        double bias = 0;
        if (s.IsInside(b, i, j)) {
          Row r = s.Q(b, h, i);
          if (scaled == v1::INKLING_SCALED_STATES) {
            for (double& value : r) value = Rounded(dtype, static_cast<float>(value) * tau);
          }
          bias = Rounded(dtype, static_cast<float>(Dot(r, s.columns[s.Distance(b, i, j)])));
          if (scaled == v1::INKLING_SCALED_BIAS) bias = Rounded(dtype, static_cast<float>(bias) * tau);
        }
        EXPECT_EQ(ours[n], bias) << b << " " << h << " " << i << " " << j;
      });
    }
  }
}

// Cells outside the extent are 0, whatever the states are, and nothing is added to the scores there.
TEST(Inkling, IsZeroOutside) {
  States s(DType::kFP32, 2);
  s.q[0] = std::nan("");
  s.q[s.dim] = INFINITY;
  v1::RelativeScoresRequest request = s.Ask(v1::INKLING_SCALED_BIAS);
  const int64_t cells = s.batch * s.heads * s.queries * s.keys;
  *request.mutable_add_to() = MakeTensor(DType::kFP32, {s.batch, s.heads, s.queries, s.keys}, std::vector(cells, 3.5));
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());
  const std::vector<double> ours = ValuesOf(answer->scores());
  s.ForEach([&](int64_t b, int64_t, int64_t i, int64_t j, int64_t n) {
    if (!s.IsInside(b, i, j)) {
      EXPECT_EQ(ours[n], 3.5);
    }
  });
  EXPECT_TRUE(std::isnan(ours[3]));
}

TEST(Inkling, TheSameBytesOnEveryTarget) {
  const States s(DType::kBF16, 100, 50);
  v1::RelativeScoresRequest request = s.Ask(v1::INKLING_SCALED_STATES);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
  std::string first;
  OnEveryTarget([&] {
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    if (first.empty()) first = answer->scores().data();
    EXPECT_EQ(answer->scores().data(), first);
  });
}

}  // namespace
}  // namespace posenc::inkling_oracle_test
