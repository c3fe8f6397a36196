// Analyze: curves over distance against the papers' formulas in plain complex arithmetic; pairs against each scaling's
// own rule.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <numbers>

#include "tests/service/call.h"

namespace posenc::analyze_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

v1::AnalyzeRequest Rope(const std::string& rope_type, int64_t rotary_dim) {
  v1::AnalyzeRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type(rope_type);
  settings.set_rotary_dim(rotary_dim);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return request;
}
v1::RopeParameters& Parameters(v1::AnalyzeRequest& request) {
  return *request.mutable_rotary()->mutable_settings()->mutable_rope_parameters();
}
v1::AnalyzeRequest Sinusoidal(int64_t dim) {
  v1::AnalyzeRequest request;
  request.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED);
  request.mutable_sinusoidal()->set_dim(dim);
  return request;
}
void SetDistances(const std::vector<double>& distances, v1::AnalyzeRequest* request) {
  *request->mutable_distances()->mutable_ids() =
      MakeTensor(DType::kFP64, {static_cast<int64_t>(distances.size())}, distances);
}

struct Curves {
  std::vector<double> cosine_sum, decay_bound;
};
Curves CurvesOf(const v1::AnalyzeRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  if (!response.ok()) return {};
  EXPECT_EQ(ShapeOf(response->cosine_sum()), ShapeOf(response->decay_bound()));
  return {ValuesOf(response->cosine_sum()), ValuesOf(response->decay_bound())};
}

// Equations (35) to (37) of arXiv:2104.09864: S_j = sum over i < j of exp(i m theta_i), and the mean of |S_j| over j =
// 1 .. d/2. turn(i, m) is the i-th term.
using Turn = std::function<std::complex<double>(size_t, double)>;
Curves Oracle(size_t pairs, const std::vector<double>& distances, const Turn& turn) {
  Curves curves;
  for (const double m : distances) {
    std::vector<std::complex<double>> s = {0};
    double sum = 0, mean = 0;
    for (size_t i = 0; i < pairs; ++i) {
      s.push_back(s.back() + turn(i, m));
      sum += turn(i, m).real();
    }
    for (size_t j = 1; j <= pairs; ++j) mean += std::abs(s[j]) / static_cast<double>(pairs);
    curves.cosine_sum.push_back(sum);
    curves.decay_bound.push_back(mean);
  }
  return curves;
}
std::complex<double> RoFormer(size_t dim, size_t i, double m) {
  return std::polar(1.0, m * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
}
void ExpectNear(const Curves& actual, const Curves& expected, double tolerance) {
  EXPECT_THAT(actual.cosine_sum, Pointwise(DoubleNear(tolerance), expected.cosine_sum));
  EXPECT_THAT(actual.decay_bound, Pointwise(DoubleNear(tolerance), expected.decay_bound));
}

// The dot products of the encodings of positions 7 and 3, and of 7 and 7 (D/2), computed by hand.
TEST(Analyze, DotProductsOfSinusoidalEncodings) {
  v1::AnalyzeRequest request = Sinusoidal(8);
  SetDistances({4, 0, -4}, &request);
  EXPECT_THAT(CurvesOf(request).cosine_sum, ElementsAre(DoubleNear(2.2666095, 5e-8), 4, DoubleNear(2.2666095, 5e-8)));
  // The encodings of positions 7 and 3 themselves have the same dot product.
  v1::GenerateEmbeddingRequest embedding;
  *embedding.mutable_sinusoidal() = request.sinusoidal();
  *embedding.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {2}, std::vector<double>{7, 3});
  embedding.set_dtype(v1::DATA_TYPE_FP64);
  const std::vector<double> rows = ValuesOf(Call(embedding)->embedding());
  double dot = 0;
  for (size_t k = 0; k < 8; ++k) dot += rows[k] * rows[8 + k];
  EXPECT_NEAR(CurvesOf(request).cosine_sum[0], dot, 1e-14);
}

TEST(Analyze, CurvesOfRoFormer) {
  const std::vector<double> distances = {0, 1, 2, 50, 255, 4096, 131071, -3, 0.5};
  v1::AnalyzeRequest request = Rope("default", 128);
  SetDistances(distances, &request);
  const Curves curves = CurvesOf(request);
  ExpectNear(curves, Oracle(64, distances, [](size_t i, double m) { return RoFormer(128, i, m); }), 1e-8);
  EXPECT_EQ(curves.cosine_sum[0], 64);
  EXPECT_EQ(curves.decay_bound[0], 32.5);
}

// The bound falls with the distance; the cosine sum does not always fall.
TEST(Analyze, TheBoundFallsAndTheCosineSumWaves) {
  v1::AnalyzeRequest request = Rope("default", 128);
  request.mutable_distances()->set_offset(0);
  request.set_count(257);
  const Curves curves = CurvesOf(request);
  ASSERT_EQ(curves.cosine_sum.size(), 257u);
  EXPECT_LT(curves.decay_bound[50], 0.6 * curves.decay_bound[0]);
  EXPECT_LT(curves.decay_bound[256], curves.decay_bound[50]);
  int rises = 0;
  for (size_t m = 1; m < 257; ++m) rises += curves.cosine_sum[m] > curves.cosine_sum[m - 1];
  EXPECT_GT(rises, 50);
}

// Correctly rounded cosines are summed from the first pair on, so every bit is determined.
TEST(Analyze, SumsTheExactTable) {
  v1::AnalyzeRequest request = Rope("default", 64);
  request.mutable_distances()->set_offset(100'000);
  request.set_count(3000);
  v1::GenerateTableRequest table;
  *table.mutable_rotary() = request.rotary();
  *table.mutable_positions() = request.distances();
  table.set_count(request.count());
  table.set_dtype(v1::DATA_TYPE_FP64);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  const std::vector<double> cosines = ValuesOf(Call(table)->cos());
  const Curves curves = CurvesOf(request);
  for (size_t n = 0; n < 3000; ++n) {
    double sum = 0;
    for (size_t i = 0; i < 32; ++i) sum += cosines[n * 32 + i];
    ASSERT_EQ(curves.cosine_sum[n], sum) << n;
  }
}

TEST(Analyze, AttentionScalingIsNotInTheCurves) {
  v1::AnalyzeRequest request = Rope("yarn", 64);
  Parameters(request).set_factor(4);
  Parameters(request).set_original_max_position_embeddings(4096);
  SetDistances({0}, &request);
  EXPECT_THAT(CurvesOf(request).cosine_sum, ElementsAre(32));
  EXPECT_GT(Call(request)->info().sequences(0).attention_scaling(), 1.1);
}

TEST(Analyze, XposMakesTermsFallThemselves) {
  const std::vector<double> distances = {0, 3, 700, -700};
  v1::AnalyzeRequest request = Rope("default", 16);
  auto& xpos = *request.mutable_rotary()->mutable_settings()->mutable_xpos();
  xpos.set_scale_base(256);
  xpos.set_centre(1000);  // no effect: only the distance counts
  SetDistances(distances, &request);
  const auto term = [](size_t i, double m) {
    return std::pow((2.0 * static_cast<double>(i) + 0.4 * 16) / (1.4 * 16), m / 256) * RoFormer(16, i, m);
  };
  ExpectNear(CurvesOf(request), Oracle(8, distances, term), 1e-9);
}

TEST(Analyze, DistancesOfSeveralAxes) {
  v1::AnalyzeRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.set_input_pairing(v1::PAIRING_INTERLEAVED);
  for (int axis = 0; axis < 2; ++axis) settings.mutable_axial()->add_axes()->set_dim(8);
  auto& grid = *request.mutable_distances()->mutable_segments()->add_segment()->mutable_grid();
  for (const int64_t size : {2, 3}) grid.add_size(size);
  for (const double start : {-1.0, 4.0}) grid.add_start(start);
  const Curves curves = CurvesOf(request);
  const double rows[] = {-1, -1, -1, 0, 0, 0}, columns[] = {4, 5, 6, 4, 5, 6};
  const Curves expected = Oracle(8, {0, 1, 2, 3, 4, 5}, [&](size_t i, double n) {
    const auto cell = static_cast<size_t>(n);
    return i < 4 ? RoFormer(8, i, rows[cell]) : RoFormer(8, i - 4, columns[cell]);
  });
  ExpectNear(curves, expected, 1e-12);
  const auto response = Call(request);
  EXPECT_EQ(response->pairs(3).axis(), 0);
  EXPECT_EQ(response->pairs(4).axis(), 1);
}

std::vector<v1::PairAnalysis> PairsOf(const v1::AnalyzeRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  if (!response.ok()) return {};
  EXPECT_FALSE(response->has_cosine_sum());
  return {response->pairs().begin(), response->pairs().end()};
}

// Llama 3.1 scales by wavelength: below L0/4 kept, above L0/1 divided, blended between.
TEST(Analyze, PairsOfLlama3) {
  v1::AnalyzeRequest request = Rope("llama3", 128);
  v1::RopeParameters& p = Parameters(request);
  p.set_rope_theta(500000);
  p.set_factor(8);
  p.set_original_max_position_embeddings(8192);
  p.set_low_freq_factor(1);
  p.set_high_freq_factor(4);
  int kinds[5] = {};
  const auto pairs = PairsOf(request);
  ASSERT_EQ(pairs.size(), 64u);
  for (size_t i = 0; i < 64; ++i) {
    const v1::PairAnalysis& pair = pairs[i];
    const double unscaled = std::pow(500000.0, -static_cast<double>(i) / 64),
                 wavelength = 2 * std::numbers::pi / unscaled;
    EXPECT_NEAR(pair.unscaled_inv_freq() / unscaled, 1, 1e-14);
    EXPECT_NEAR(pair.wavelength() * pair.inv_freq(), 2 * std::numbers::pi, 1e-14);
    EXPECT_EQ(pair.scaling(), wavelength < 2048   ? v1::PAIR_SCALING_KEPT
                              : wavelength > 8192 ? v1::PAIR_SCALING_INTERPOLATED
                                                  : v1::PAIR_SCALING_MIXED)
        << i;
    const bool mixed = pair.scaling() == v1::PAIR_SCALING_MIXED, kept = pair.scaling() == v1::PAIR_SCALING_KEPT;
    EXPECT_EQ(mixed, pair.ratio() > 0.1251 && pair.ratio() < 1) << i;
    EXPECT_TRUE(mixed || kept || std::fabs(pair.ratio() - 1.0 / 8) < 1e-15) << i;
    ++kinds[pair.scaling()];
  }
  EXPECT_TRUE(kinds[1] > 0 && kinds[2] > 0 && kinds[3] > 0);
}

// The factor is no power of two, so the ratio of two rounded frequencies is not exactly 1/3.
TEST(Analyze, PairsOfLinear) {
  v1::AnalyzeRequest request = Rope("linear", 128);
  Parameters(request).set_factor(3);
  for (const auto& pair : PairsOf(request)) EXPECT_EQ(pair.scaling(), v1::PAIR_SCALING_INTERPOLATED);
  Parameters(request).set_factor(1);
  for (const auto& pair : PairsOf(request)) EXPECT_EQ(pair.scaling(), v1::PAIR_SCALING_KEPT);
}

TEST(Analyze, PairsThatStop) {
  v1::AnalyzeRequest request = Rope("proportional", 16);
  Parameters(request).set_partial_rotary_factor(0.25);
  const auto pairs = PairsOf(request);
  EXPECT_EQ(pairs[1].scaling(), v1::PAIR_SCALING_KEPT);
  EXPECT_EQ(pairs[2].scaling(), v1::PAIR_SCALING_STOPPED);
  EXPECT_EQ(pairs[2].wavelength(), INFINITY);
}

// theta^-1 is the least power that is not 0, so there is nothing to divide by.
TEST(Analyze, PairsWhosePowersAreZero) {
  v1::AnalyzeRequest request = Rope("linear", 8);
  Parameters(request).set_rope_theta(1e300);
  Parameters(request).set_factor(2);
  Parameters(request).set_frequency_dim(2);
  const auto pairs = PairsOf(request);
  EXPECT_EQ(pairs[1].scaling(), v1::PAIR_SCALING_INTERPOLATED);
  for (const int n : {2, 3}) {
    EXPECT_EQ(pairs[n].inv_freq(), 0);
    EXPECT_EQ(pairs[n].ratio(), 0);
    EXPECT_EQ(pairs[n].scaling(), v1::PAIR_SCALING_STOPPED);
  }
}

// The squares of the sums are not in float64's range, the sums are.
TEST(Analyze, CurvesOfVeryLargeAndSmallScales) {
  v1::AnalyzeRequest request = Rope("default", 4);
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(0);
  SetDistances({-2e5, 5e5}, &request);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const auto sums = ValuesOf(response->cosine_sum()), bounds = ValuesOf(response->decay_bound());
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_GE(bounds[n] * 2, std::fabs(sums[n]));
    EXPECT_LE(bounds[n], std::fabs(sums[n]) * 1e3);
  }
}

// Dynamic NTK changes the base only beyond the trained length; the first frequency is 1 with any base.
TEST(Analyze, PairsOfAnotherBase) {
  v1::AnalyzeRequest request = Rope("dynamic", 16);
  Parameters(request).set_factor(2);
  request.mutable_rotary()->mutable_settings()->set_max_position_embeddings(2048);
  request.set_seq_len(2048);
  for (const auto& pair : PairsOf(request)) EXPECT_EQ(pair.scaling(), v1::PAIR_SCALING_KEPT);
  request.set_seq_len(4096);
  const auto pairs = PairsOf(request);
  EXPECT_EQ(pairs[0].scaling(), v1::PAIR_SCALING_KEPT);
  EXPECT_EQ(pairs[1].scaling(), v1::PAIR_SCALING_MIXED);
}

TEST(Analyze, NothingToCompareWith) {
  v1::AnalyzeRequest given = Rope("", 4);
  auto& frequencies = *given.mutable_rotary()->mutable_settings()->mutable_given_frequencies();
  frequencies.add_inv_freq(-0.5);
  frequencies.add_inv_freq(2);
  for (const v1::AnalyzeRequest& request : {given, Rope("pixel", 4), Rope("constant", 4), Sinusoidal(4)}) {
    for (const auto& pair : PairsOf(request)) {
      EXPECT_EQ(pair.scaling(), v1::PAIR_SCALING_UNSPECIFIED);
      EXPECT_FALSE(pair.has_ratio() || pair.has_unscaled_inv_freq());
      EXPECT_EQ(pair.wavelength(), 2 * std::numbers::pi / std::fabs(pair.inv_freq()));
    }
  }
}

TEST(BadAnalyze, NamesTheField) {
  const auto with = [](v1::AnalyzeRequest request, auto change) {
    change(&request);
    return Call(request);
  };
  using Request = v1::AnalyzeRequest*;
  const v1::AnalyzeRequest rope = Rope("default", 8);
  EXPECT_THAT(Call(v1::AnalyzeRequest()), IsInvalid("MISSING", "subject"));
  EXPECT_THAT(with(rope, [](Request r) { r->set_count(3); }), IsInvalid("NOT_READ", "count"));
  EXPECT_THAT(with(rope, [](Request r) { r->set_seq_len(3); }), IsInvalid("NOT_READ", "seq_len"));
  EXPECT_THAT(with(Sinusoidal(8), [](Request r) { r->set_seq_len(3); }), IsInvalid("NOT_READ", "seq_len"));
  EXPECT_THAT(with(rope, [](Request r) { r->mutable_distances()->set_offset(0); }), IsInvalid("MISSING", "count"));
  EXPECT_THAT(with(rope, [](Request r) { r->mutable_distances(), r->set_count(1); }),
              IsInvalid("MISSING", "distances.source"));
  EXPECT_THAT(with(rope, [](Request r) { r->mutable_distances()->mutable_offsets(), r->set_count(1); }),
              IsInvalid("NOT_READ", "distances.offsets"));
  EXPECT_THAT(with(rope, [](Request r) { r->mutable_distances()->set_offset(0), r->set_count(-1); }),
              IsInvalid("OUT_OF_RANGE", "count"));
  EXPECT_THAT(with(rope, [](Request r) { SetDistances({1, 2}, r), r->set_count(3); }), IsInvalid("MISMATCH", "count"));
  EXPECT_THAT(with(rope,
                   [](Request r) {
                     SetDistances({1, NAN}, r);
                   })
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(with(rope, [](Request r) { SetDistances({1}, r), r->mutable_distances()->add_seq_len(4); }),
              IsInvalid("NOT_READ", "distances.scaling_length_rule"));
  EXPECT_THAT(Call(Sinusoidal(7)), IsInvalid("OUT_OF_RANGE", "sinusoidal.dim"));
  EXPECT_THAT(with(Sinusoidal(1),
                   [](Request r) { r->mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR); }),
              IsInvalid("OUT_OF_RANGE", "sinusoidal.dim"));
  EXPECT_THAT(with(Sinusoidal(8), [](Request r) { r->mutable_sinusoidal()->mutable_token_valid(); }),
              IsInvalid("NOT_READ", "sinusoidal.token_valid"));
  v1::AnalyzeRequest dynamic = Rope("dynamic", 8);
  Parameters(dynamic).set_factor(2);
  dynamic.mutable_rotary()->mutable_settings()->set_max_position_embeddings(64);
  EXPECT_THAT(Call(dynamic), IsInvalid("MISSING", "seq_len"));
  EXPECT_THAT(with(dynamic, [](Request r) { r->set_seq_len(0); }), IsInvalid("OUT_OF_RANGE", "seq_len"));
  v1::AnalyzeRequest table = Rope("", 4);
  auto& given = *table.mutable_rotary()->mutable_settings()->mutable_given_table();
  *given.mutable_cos() = *given.mutable_sin() = MakeTensor(DType::kFP32, {1, 2}, std::vector<double>{1, 1});
  given.set_form(v1::TABLE_FORM_HALF_WIDTH);
  EXPECT_THAT(Call(table), IsInvalid("UNSUPPORTED", "rotary.settings.given_table"));
}

// A distance takes 16 bytes for each of 4 pairs.
TEST(BadAnalyze, TooManyDistances) {
  v1::AnalyzeRequest request = Rope("default", 8);
  request.mutable_distances()->set_offset(0);
  Limits limits;
  limits.max_output_bytes = 64 * 100;
  request.set_count(100);
  EXPECT_THAT(Call(request, limits), IsOk());
  for (const int64_t count : {int64_t{101}, int64_t{1} << 30}) {
    request.set_count(count);
    EXPECT_THAT(Call(request, limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "count"));
  }
}

}  // namespace
}  // namespace posenc::analyze_test
