// Sinusoidal embeddings in the four conventions, against a plain loop in double.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/service/call.h"

namespace posenc::embedding_test {
namespace {

// One row by the convention's definition; `position` includes every shift.
std::vector<double> Row(const v1::Sinusoidal& s, double position, bool padding = false) {
  const int64_t dim = s.dim(), half = dim / 2;
  std::vector<double> row(dim, 0.0);
  if (padding) return row;
  const double max = s.has_max_timescale() ? s.max_timescale() : 10000;
  const double min = s.has_min_timescale() ? s.min_timescale() : 1;
  const double scale = s.has_scale() ? s.scale() : 1;
  for (int64_t k = 0; k < half; ++k) {
    double w = std::pow(max, -2.0 * k / dim);
    if (s.convention() == v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR ||
        s.convention() == v1::SINUSOIDAL_CONVENTION_FAIRSEQ) {
      w = min * std::exp(-k * std::log(max / min) / std::max<double>(half - 1, 1));
    }
    const bool interleaved = s.convention() == v1::SINUSOIDAL_CONVENTION_INTERLEAVED;
    row[interleaved ? 2 * k : k] = scale * std::sin(position * w);
    row[interleaved ? 2 * k + 1 : half + k] = scale * std::cos(position * w);
  }
  return row;
}

v1::GenerateEmbeddingRequest Request(v1::SinusoidalConvention convention, int64_t dim) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_sinusoidal()->set_convention(convention);
  request.mutable_sinusoidal()->set_dim(dim);
  if (convention == v1::SINUSOIDAL_CONVENTION_FAIRSEQ) request.mutable_sinusoidal()->set_padding_idx(1);
  request.set_dtype(v1::DATA_TYPE_FP64);
  request.mutable_positions()->set_offset(3);
  request.set_count(50);
  return request;
}

void ExpectRow(const v1::GenerateEmbeddingResponse& response, int64_t row, const std::vector<double>& expected) {
  const std::vector<double> all = ValuesOf(response.embedding());
  for (size_t e = 0; e < expected.size(); ++e) {
    ASSERT_NEAR(all[row * expected.size() + e], expected[e], 1e-12) << "row " << row << ", element " << e;
  }
}

TEST(Sinusoidal, AllConventionsAgreeWithTheirDefinition) {
  const struct {
    v1::SinusoidalConvention convention;
    std::vector<int64_t> dims;
    int64_t shift;
  } cases[] = {{v1::SINUSOIDAL_CONVENTION_INTERLEAVED, {2, 8, 64}, 0},
               {v1::SINUSOIDAL_CONVENTION_HALVES, {2, 8, 64}, 0},
               {v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR, {1, 2, 3, 8, 9, 65}, 0},
               {v1::SINUSOIDAL_CONVENTION_FAIRSEQ, {4, 5, 8, 65}, 2}};
  for (const auto& [convention, dims, shift] : cases) {
    for (int64_t dim : dims) {
      SCOPED_TRACE(v1::SinusoidalConvention_Name(convention) + " " + std::to_string(dim));
      v1::GenerateEmbeddingRequest request = Request(convention, dim);
      request.mutable_sinusoidal()->set_max_timescale(500);
      request.mutable_sinusoidal()->set_scale(1 / std::sqrt(8.0));
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      ASSERT_EQ(ShapeOf(response->embedding()), (std::vector<int64_t>{50, dim}));
      for (int64_t s = 0; s < 50; ++s) ExpectRow(*response, s, Row(request.sinusoidal(), 3.0 + s + shift));
    }
  }
}

TEST(Sinusoidal, StartIndexAndTimescalesOfTensor2Tensor) {
  v1::GenerateEmbeddingRequest request = Request(v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR, 9);
  request.mutable_sinusoidal()->set_start_index(-7);
  request.mutable_sinusoidal()->set_min_timescale(2.5);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  for (int64_t s = 0; s < 50; ++s) ExpectRow(*response, s, Row(request.sinusoidal(), 3.0 + s - 7));
}

// fairseq counts valid tokens from padding_idx + 1; padding gets the zero row.
TEST(Sinusoidal, PaddingOfFairseq) {
  v1::GenerateEmbeddingRequest request = Request(v1::SINUSOIDAL_CONVENTION_FAIRSEQ, 8);
  request.clear_positions();
  request.clear_count();
  const std::vector<uint8_t> valid = {0, 0, 1, 1, 1,  //
                                      1, 1, 0, 1, 0};
  *request.mutable_sinusoidal()->mutable_token_valid() = MakeTensor(DType::kBOOL, {2, 5}, valid);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  ASSERT_EQ(ShapeOf(response->embedding()), (std::vector<int64_t>{2, 5, 8}));
  for (int64_t b = 0; b < 2; ++b) {
    int64_t next = 2;
    for (int64_t s = 0; s < 5; ++s) {
      const bool padding = valid[b * 5 + s] == 0;
      ExpectRow(*response, b * 5 + s, Row(request.sinusoidal(), padding ? 1.0 : static_cast<double>(next), padding));
      next += !padding;
    }
  }
}

TEST(Sinusoidal, FractionalIdsOfABatch) {
  v1::GenerateEmbeddingRequest request = Request(v1::SINUSOIDAL_CONVENTION_HALVES, 8);
  const std::vector<double> ids = {0, 0.5, -3.25, 1e6, 7, 8};
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {2, 3}, ids);
  request.clear_count();
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  ASSERT_EQ(ShapeOf(response->embedding()), (std::vector<int64_t>{2, 3, 8}));
  for (size_t n = 0; n < ids.size(); ++n) {
    const std::vector<double> expected = Row(request.sinusoidal(), ids[n]);
    for (size_t e = 0; e < 8; ++e) {
      ASSERT_NEAR(ValuesOf(response->embedding())[n * 8 + e], expected[e], 1e-9) << ids[n];
    }
  }
}

// A narrower answer is the real value rounded once: the float64 value rounded, except at ties, which do not occur here.
TEST(Sinusoidal, NarrowTypesAreRoundedOnce) {
  v1::GenerateEmbeddingRequest request = Request(v1::SINUSOIDAL_CONVENTION_INTERLEAVED, 64);
  const auto wide = Call(request);
  ASSERT_THAT(wide, IsOk());
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    request.set_dtype(Wire(dtype));
    const auto narrow = Call(request);
    ASSERT_THAT(narrow, IsOk());
    EXPECT_EQ(narrow->embedding().data(), Pack(dtype, ValuesOf(wide->embedding()))) << Name(dtype);
  }
}

// p_a . p_b = sum of cos((a - b) w_k), so only the distance counts.
TEST(Sinusoidal, DotProductsDependOnTheDistanceOnly) {
  for (auto convention : {v1::SINUSOIDAL_CONVENTION_INTERLEAVED, v1::SINUSOIDAL_CONVENTION_HALVES,
                          v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR}) {
    const auto response = Call(Request(convention, 64));
    ASSERT_THAT(response, IsOk());
    const std::vector<double> p = ValuesOf(response->embedding());
    const auto dot = [&p](int a, int b) {
      double sum = 0;
      for (int e = 0; e < 64; ++e) sum += p[a * 64 + e] * p[b * 64 + e];
      return sum;
    };
    for (int distance : {0, 1, 9}) {
      for (int a = distance; a < 50; ++a) EXPECT_NEAR(dot(a, a - distance), dot(distance, 0), 1e-12);
    }
    EXPECT_NEAR(dot(5, 5), 32, 1e-12);
  }
}

}  // namespace
}  // namespace posenc::embedding_test
