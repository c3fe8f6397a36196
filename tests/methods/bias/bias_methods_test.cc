// The values of every bias method except ALiBi, against oracles, the papers' numbers, and each other's forms.
#include <gtest/gtest.h>

#include <random>

#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/bias_recipe.h"
#include "tests/service/call.h"

namespace posenc::bias_methods_test {
namespace {

using reference::Number;
using Exact = Number<300>;
using F32 = Number<24>;
using F64 = Number<53>;
using testing::ElementsAre;

std::vector<int32_t> Buckets(T5Settings settings, int64_t first, int64_t last, Frequencies arithmetic) {
  EXPECT_THAT(Complete(settings), IsOk());
  return T5Buckets(arithmetic, settings, first, last - first + 1);
}

// The distances at which the bucket changes.
std::vector<std::pair<int, int>> Changes(const T5Settings& settings, int64_t last) {
  std::vector<std::pair<int, int>> changes;
  const auto buckets = Buckets(settings, -last, 0, Frequencies::kExact);
  for (int64_t n = 1; n <= last; ++n) {
    if (buckets[last - n] != buckets[last - n + 1]) changes.emplace_back(buckets[last - n], n);
  }
  return changes;
}

TEST(T5, ThresholdsOfTheDefaults) {
  std::vector<std::pair<int, int>> encoder, decoder;
  for (int n = 1; n <= 8; ++n) encoder.emplace_back(n, n);
  encoder.insert(encoder.end(), {{9, 12}, {10, 16}, {11, 23}, {12, 32}, {13, 46}, {14, 64}, {15, 91}});
  for (int n = 1; n <= 16; ++n) decoder.emplace_back(n, n);
  decoder.insert(decoder.end(), {{17, 19},
                                 {18, 21},
                                 {19, 24},
                                 {20, 27},
                                 {21, 31},
                                 {22, 35},
                                 {23, 40},
                                 {24, 46},
                                 {25, 52},
                                 {26, 59},
                                 {27, 67},
                                 {28, 77},
                                 {29, 87},
                                 {30, 99},
                                 {31, 113}});
  EXPECT_EQ(Changes({.bidirectional = true}, 2000), encoder);
  EXPECT_EQ(Changes({.bidirectional = false}, 2000), decoder);
}

TEST(T5, BucketsAreThoseOfTheOracles) {
  const struct {
    int64_t buckets, distance;
  } cases[] = {{32, 128}, {64, 256}, {34, 27}, {6, 20}, {5, 9}, {4, 8}, {320, 800}, {9, 1000}, {33, 128}, {128, 100}};
  for (const auto& [buckets, distance] : cases) {
    for (bool bidirectional : {true, false}) {
      SCOPED_TRACE(testing::Message() << buckets << " buckets, " << distance << ", bidirectional " << bidirectional);
      const T5Settings settings{buckets, distance, bidirectional};
      constexpr int64_t kLast = 300;
      const auto exact = Buckets(settings, -kLast, kLast, Frequencies::kExact);
      const auto single = Buckets(settings, -kLast, kLast, Frequencies::kFloat32);
      const auto twice = Buckets(settings, -kLast, kLast, Frequencies::kFloat64);
      for (int64_t r = -kLast; r <= kLast; r += OneIn()) {
        ASSERT_EQ(exact[r + kLast], reference::T5BucketOfIntegers(r, buckets, distance, bidirectional)) << r;
        ASSERT_EQ(single[r + kLast], (reference::T5Bucket<F32, F64>(r, buckets, distance, bidirectional))) << r;
        ASSERT_EQ(twice[r + kLast], (reference::T5Bucket<F64, F64>(r, buckets, distance, bidirectional))) << r;
      }
    }
  }
}

// The formula gives a whole number (3, of ln 1.5 / ln 3.375 * 9); float32's chain, each step correctly rounded, falls
// one bucket short.
TEST(T5, OddConfigurationsDependOnTheLogarithm) {
  const auto single = Buckets({34, 27, true}, -12, 12, Frequencies::kFloat32);
  EXPECT_EQ(single.front(), 10);
  EXPECT_EQ(single.back(), 27);
  const auto exact = Buckets({34, 27, true}, -12, 12, Frequencies::kExact);
  EXPECT_EQ(exact.front(), 11);
  EXPECT_EQ(exact.back(), 28);
}

// Few distances far from 0, and a tie of large powers.
TEST(T5, FarDistances) {
  const auto far = Buckets({.bidirectional = false}, -2000000000, -1999999990, Frequencies::kExact);
  EXPECT_THAT(far, testing::Each(31));
  // 2^13 is twice the 2^12 distances with buckets of their own: exactly an eighth of the way to 2^20.
  EXPECT_THAT(Buckets({8192, int64_t{1} << 20, false}, -8192, -8191, Frequencies::kExact), ElementsAre(4608, 4607));
}

v1::GenerateBiasRequest Request(const v1::BiasMethod& method, int64_t queries, int64_t keys,
                                v1::BiasForm form = v1::BIAS_FORM_DENSE) {
  v1::GenerateBiasRequest request;
  *request.mutable_method() = method;
  request.mutable_geometry()->set_query_length(queries);
  request.mutable_geometry()->set_key_length(keys);
  request.mutable_geometry()->set_query_offset(keys - queries);
  request.set_form(form);
  const bool index = form == v1::BIAS_FORM_INDEX || form == v1::BIAS_FORM_COMPACT_INDEX;
  request.set_dtype(index ? v1::DATA_TYPE_INT32 : v1::DATA_TYPE_FP32);
  return request;
}

std::vector<double> Values(const v1::GenerateBiasRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? ValuesOf(response->bias()) : std::vector<double>{};
}

std::vector<int32_t> Integers(const v1::GenerateBiasRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  if (!response.ok()) return {};
  std::vector<int32_t> values(response->bias().data().size() / sizeof(int32_t));
  std::memcpy(values.data(), response->bias().data().data(), response->bias().data().size());
  return values;
}

std::vector<double> Random(size_t count, uint32_t seed, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<double> values;
  for (size_t n = 0; n < count; ++n) values.push_back(normal(random) * static_cast<float>(scale));
  return values;
}

v1::BiasMethod T5(int64_t heads, bool bidirectional, bool heads_first) {
  v1::BiasMethod method;
  method.mutable_t5()->set_bidirectional(bidirectional);
  *method.mutable_table() =
      MakeTensor(DType::kFP32, {heads_first ? heads : 32, heads_first ? 32 : heads}, Random(32 * heads, 1));
  method.set_table_layout(heads_first ? v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS
                                      : v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return method;
}

// With 32 heads by 32 buckets the shape does not tell the layouts apart.
TEST(T5, LooksUpTheTableInBothLayouts) {
  const std::vector<double> table = Random(32 * 32, 1);
  for (bool heads_first : {false, true}) {
    const std::vector<double> values = Values(Request(T5(32, true, heads_first), 3, 9));
    ASSERT_EQ(values.size(), 32u * 3 * 9);
    for (int64_t h = 0; h < 32; ++h) {
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 9; ++j) {
          const int64_t bucket = reference::T5BucketOfIntegers(j - i - 6, 32, 128, true);
          ASSERT_EQ(values[(h * 3 + i) * 9 + j], table[heads_first ? h * 32 + bucket : bucket * 32 + h]);
        }
      }
    }
  }
}

v1::BiasMethod Kerple(v1::KerpleKernel kernel, const std::vector<double>& a, const std::vector<double>& p) {
  v1::BiasMethod method;
  method.mutable_kerple()->set_kernel(kernel);
  method.mutable_kerple()->mutable_a()->Assign(a.begin(), a.end());
  method.mutable_kerple()->mutable_p()->Assign(p.begin(), p.end());
  return method;
}

v1::BiasMethod SandwichMethod(bool paper, int64_t heads, int64_t dim) {
  v1::BiasMethod method;
  method.mutable_sandwich()->set_convention(paper ? v1::SANDWICH_CONVENTION_PAPER : v1::SANDWICH_CONVENTION_SNIPPET);
  method.mutable_sandwich()->set_num_heads(heads);
  method.mutable_sandwich()->set_dim(dim);
  return method;
}

// One query at the last key: the distances end at 0.
TEST(Kerple, PublishedNumbers) {
  const std::vector<double> values = Values(Request(Kerple(v1::KERPLE_KERNEL_LOG, {1}, {1}), 1, 3));
  EXPECT_THAT(values, ElementsAre(testing::DoubleNear(-1.098612, 5e-7), testing::DoubleNear(-0.693147, 5e-7), 0));
  EXPECT_THAT(Values(Request(Kerple(v1::KERPLE_KERNEL_POWER, {0.5}, {2}), 1, 4)), ElementsAre(-4.5, -2, -0.5, 0));
}

TEST(Kerple, ClampsAsTheOriginal) {
  for (auto kernel : {v1::KERPLE_KERNEL_LOG, v1::KERPLE_KERNEL_POWER}) {
    EXPECT_EQ(Values(Request(Kerple(kernel, {-3, 0.001}, {0, 0.01}), 1, 9)),
              Values(Request(Kerple(kernel, {0.01, 0.01}, {0.01, 0.01}), 1, 9)));
  }
  EXPECT_EQ(Values(Request(Kerple(v1::KERPLE_KERNEL_POWER, {1}, {2.5}), 1, 9)),
            Values(Request(Kerple(v1::KERPLE_KERNEL_POWER, {1}, {2}), 1, 9)));
  EXPECT_NE(Values(Request(Kerple(v1::KERPLE_KERNEL_LOG, {1}, {2.5}), 1, 9)),
            Values(Request(Kerple(v1::KERPLE_KERNEL_LOG, {1}, {2}), 1, 9)));
}

TEST(Kerple, EqualsItsOracles) {
  const std::vector<double> a = {0.01, 0.5, 1, 3.25, 0.30000001, 1e6}, p = {2, 0.0101, 1, 0.75, 1.999, 1.5};
  constexpr int64_t kKeys = 700;
  for (auto kernel : {v1::KERPLE_KERNEL_LOG, v1::KERPLE_KERNEL_POWER}) {
    for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32}) {
      v1::GenerateBiasRequest request = Request(Kerple(kernel, a, p), 1, kKeys);
      request.mutable_precision()->set_preset(preset);
      const std::vector<double> values = Values(request);
      const bool log = kernel == v1::KERPLE_KERNEL_LOG, exact = preset == v1::PRECISION_PRESET_EXACT;
      for (size_t h = 0; h < a.size(); ++h) {
        for (int64_t j = 0; j < kKeys; ++j) {
          const int64_t r = kKeys - 1 - j;
          const double expected =
              exact ? (log ? reference::KerpleLog<Exact>(a[h], p[h], r) : reference::KerplePower<Exact>(a[h], p[h], r))
                          .RoundedTo<24>()
                    : (log ? reference::KerpleLog<F32>(a[h], p[h], r) : reference::KerplePower<F32>(a[h], p[h], r))
                          .ToDouble();
          ASSERT_EQ(values[h * kKeys + j], expected) << "head " << h << ", distance " << r << ", exact " << exact;
        }
      }
    }
  }
}

TEST(Sandwich, TheSnippetsNumbers) {
  // Head 1 of 8 divides by 1.
  v1::GenerateBiasRequest request = Request(SandwichMethod(false, 8, 128), 1, 1001);
  const std::vector<double> values = Values(request);
  EXPECT_EQ(values[1000], 64);
  EXPECT_NEAR(values[999], 62.0937, 5e-5);
  EXPECT_NEAR(values[990], 42.82, 5e-3);
  EXPECT_NEAR(values[0], 10.1777, 5e-5);
  EXPECT_EQ(values[7 * 1001 + 1000], 8);
}

TEST(Sandwich, EqualsItsOracles) {
  constexpr int64_t kHeads = 3, kKeys = 150;
  for (bool paper : {true, false}) {
    for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_FLUX}) {
      v1::GenerateBiasRequest request = Request(SandwichMethod(paper, kHeads, 14), 1, kKeys);
      request.mutable_method()->mutable_sandwich()->set_base(5000.5);
      request.mutable_precision()->set_preset(preset);
      const std::vector<double> values = Values(request);
      for (int64_t h = 1; h <= kHeads; ++h) {
        for (int64_t j = 0; j < kKeys; ++j) {
          const int64_t r = kKeys - 1 - j;
          double expected;
          switch (preset) {
            case v1::PRECISION_PRESET_EXACT:
              expected = reference::Sandwich<Exact, Exact>(paper, 14, 5000.5, kHeads, h, r).RoundedTo<24>();
              break;
            case v1::PRECISION_PRESET_F32:
              expected = reference::Sandwich<F32, F64>(paper, 14, 5000.5, kHeads, h, r).ToDouble();
              break;
            default: expected = reference::Sandwich<F64, F64>(paper, 14, 5000.5, kHeads, h, r).RoundedTo<24>();
          }
          ASSERT_EQ(values[(h - 1) * kKeys + j], expected) << "head " << h << ", distance " << r << ", " << preset;
        }
      }
    }
  }
}

// Distances 5, 4, 3, 2, 1, 0. The expected values are those of mpmath with 6000 bits, rounded once: the papers' sums
// of cos(n / base^(2k/dim)), times H / 8h.
TEST(Sandwich, EqualsMpmathForTinyBases) {
  const struct {
    double base;
    bool paper;
    int64_t dim;
    std::vector<double> values;
  } cases[] = {
      {1e-60, true, 2, {-0x1.9a6ab6p-4, -0x1.1652f4p-4, -0x1.476266p-5, -0x1.2c59p-6, -0x1.3210aep-8, 0}},
      {1e-60, false, 4, {-0x1.5e2cbcp-4, -0x1.167c0cp-4, -0x1.9cc4cep-7, -0x1.2939d8p-3, 0x1.771a26p-6, 0.25}},
      {1e-300, true, 2, {-0x1.ebd44p-3, -0x1.f3e7acp-3, -0x1.86aa56p-3, -0x1.b14e7cp-4, -0x1.ec883ap-6, 0}},
      {1e-300, false, 4, {0x1.a41af4p-4, -0x1.a36cc2p-3, -0x1.9252d8p-6, -0x1.01cc58p-4, -0x1.14e928p-6, 0.25}},
      {5e-324, true, 2, {-0x1.459e96p-5, -0x1.48487cp-3, -0x1.2d54b0p-3, -0x1.9a9b26p-5, -0x1.e4e72ep-3, 0}},
      {5e-324, false, 4, {-0x1.bf0324p-5, -0x1.f42504p-4, -0x1.b0750ap-4, 0x1.53188ep-6, 0x1.6dfaa4p-3, 0.25}},
  };
  for (const auto& [base, paper, dim, expected] : cases) {
    v1::GenerateBiasRequest request = Request(SandwichMethod(paper, 1, dim), 1, 6);
    request.mutable_method()->mutable_sandwich()->set_base(base);
    EXPECT_EQ(Values(request), expected) << base << ", dim " << dim;
  }
}

// At distance 0 head h has 505 * 65535 / 8h. For powers of two h it is half-way between two float32, of which
// 4136897 / h is the even one; 8h / 65535 is not a float64.
TEST(Sandwich, TiesOfInexactTerms) {
  const std::vector<double> values = Values(Request(SandwichMethod(false, 65535, 1010), 1, 1));
  for (size_t h = 1; h < 65535; h *= 2) EXPECT_EQ(values[h - 1], 4136897.0 / static_cast<double>(h)) << h;
}

v1::BiasMethod Swin(int64_t height, int64_t width, int64_t heads) {
  v1::BiasMethod method;
  method.mutable_swin()->set_window_height(height);
  method.mutable_swin()->set_window_width(width);
  const int64_t rows = (2 * height - 1) * (2 * width - 1);
  *method.mutable_table() = MakeTensor(DType::kFP32, {rows, heads}, Random(rows * heads, 2));
  method.set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return method;
}

v1::GenerateBiasRequest WindowRequest(const v1::BiasMethod& method, v1::BiasForm form = v1::BIAS_FORM_DENSE) {
  v1::GenerateBiasRequest request;
  *request.mutable_method() = method;
  request.set_form(form);
  request.set_dtype(form == v1::BIAS_FORM_INDEX ? v1::DATA_TYPE_INT32 : v1::DATA_TYPE_FP32);
  return request;
}

TEST(Swin, TheIndexOfATwoByTwoWindow) {
  v1::BiasMethod method;
  method.mutable_swin()->set_window_height(2);
  method.mutable_swin()->set_window_width(2);
  EXPECT_THAT(Integers(WindowRequest(method, v1::BIAS_FORM_INDEX)),
              ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
}

TEST(Swin, RowsOfTheTable) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 4}, {3, 1}, {2, 5}, {7, 7}}) {
    SCOPED_TRACE(testing::Message() << height << " x " << width);
    constexpr int64_t kHeads = 3;
    const int64_t tokens = height * width, rows = (2 * height - 1) * (2 * width - 1);
    const std::vector<double> table = Random(rows * kHeads, 2);
    const std::vector<double> values = Values(WindowRequest(Swin(height, width, kHeads)));
    const std::vector<int32_t> index = Integers(WindowRequest(Swin(height, width, kHeads), v1::BIAS_FORM_INDEX));
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t j = 0; j < tokens; ++j) {
        const int64_t row = reference::SwinRow(height, width, i, j);
        ASSERT_EQ(index[i * tokens + j], row);
        for (int64_t h = 0; h < kHeads; ++h) ASSERT_EQ(values[(h * tokens + i) * tokens + j], table[row * kHeads + h]);
      }
    }
  }
}

TEST(Beit, RowsOfTheTable) {
  v1::BiasMethod method;
  method.mutable_beit()->set_window_height(2);
  method.mutable_beit()->set_window_width(4);
  method.mutable_beit()->set_table(v1::BEIT_TABLE_PLAIN);
  *method.mutable_table() = MakeTensor(DType::kFP32, {24, 2}, Random(48, 3));
  method.set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  const std::vector<double> table = Random(48, 3), values = Values(WindowRequest(method));
  const std::vector<int32_t> index = Integers(WindowRequest(method, v1::BIAS_FORM_INDEX));
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t j = 0; j < 9; ++j) {
      const int64_t row = reference::BeitRow(2, 4, i, j);
      ASSERT_EQ(index[i * 9 + j], row);
      for (int64_t h = 0; h < 2; ++h) ASSERT_EQ(values[(h * 9 + i) * 9 + j], table[row * 2 + h]);
    }
  }
  EXPECT_THAT((std::vector<int32_t>{index[0], index[1], index[9]}), ElementsAre(23, 21, 22));
}

TEST(SwinV2, PublishedCoordinates) {
  EXPECT_NEAR(reference::LogCoordinate<F64>(1, 8).ToDouble(), 0.366512, 5e-7);
  EXPECT_NEAR(reference::LogCoordinate<F64>(3, 8).ToDouble(), 0.715614, 5e-7);
  EXPECT_NEAR(reference::LogCoordinate<F64>(7, 8).ToDouble(), 1.056642, 5e-7);
}

// The products of three hidden units cancel: w1 + w2 = w3, whose output weights are a, a and -a. So every sum is 0, and
// every bias 16 / (1 + e^0) = 8.
TEST(SwinV2, LargeTermsThatCancel) {
  for (int exponent : {60, 110, 120, 125}) {
    const double unit = std::ldexp(1.0, exponent);
    v1::BiasMethod method;
    v1::SwinV2Bias& swin = *method.mutable_swin_v2();
    swin.set_window_height(14);
    swin.set_window_width(1);
    swin.set_pretrained_window_height(15);
    swin.set_pretrained_window_width(8);
    *swin.mutable_hidden_weight() =
        MakeTensor(DType::kFP32, {3, 2}, {1.25 * unit, 0, 1.1015625 * unit, 0, 2.3515625 * unit, 0});
    *swin.mutable_hidden_bias() = MakeTensor(DType::kFP32, {3}, {0, 0, 0});
    *swin.mutable_output_weight() = MakeTensor(DType::kFP32, {1, 3}, {unit, unit, -unit});
    EXPECT_THAT(Values(WindowRequest(method)), testing::Each(8)) << exponent;
  }
}

// EXACT: bit-equal to the network over the real numbers, rounded once. F32: close to EXACT.
TEST(SwinV2, EqualsItsOracles) {
  constexpr int64_t kHeight = 3, kWidth = 4, kHidden = 21, kHeads = 2, kTokens = kHeight * kWidth;
  const std::vector<double> hidden_weight = Random(2 * kHidden, 4), hidden_bias = Random(kHidden, 5),
                            output_weight = Random(kHeads * kHidden, 6, 0.5);
  for (bool pretrained : {false, true}) {
    v1::BiasMethod method;
    v1::SwinV2Bias& swin = *method.mutable_swin_v2();
    swin.set_window_height(kHeight);
    swin.set_window_width(kWidth);
    if (pretrained) swin.set_pretrained_window_height(7), swin.set_pretrained_window_width(5);
    const int64_t height = pretrained ? 7 : kHeight, width = pretrained ? 5 : kWidth;
    *swin.mutable_hidden_weight() = MakeTensor(DType::kFP32, {kHidden, 2}, hidden_weight);
    *swin.mutable_hidden_bias() = MakeTensor(DType::kFP32, {kHidden}, hidden_bias);
    *swin.mutable_output_weight() = MakeTensor(DType::kFP32, {kHeads, kHidden}, output_weight);
    v1::GenerateBiasRequest request = WindowRequest(method);
    const std::vector<double> exact = Values(request);
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
    const std::vector<double> single = Values(request);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kTokens; ++i) {
        for (int64_t j = 0; j < kTokens; ++j) {
          const int64_t dy = i / kWidth - j / kWidth, dx = i % kWidth - j % kWidth;
          const size_t cell = (h * kTokens + i) * kTokens + j;
          const auto bias = [&](auto t) {
            using T = decltype(t);
            return reference::SwinV2<T>(reference::LogCoordinate<T>(dy, height), reference::LogCoordinate<T>(dx, width),
                                        hidden_weight, hidden_bias, output_weight.data() + h * kHidden);
          };
          ASSERT_EQ(exact[cell], bias(Exact()).template RoundedTo<24>());
          ASSERT_NEAR(single[cell], exact[cell], 2e-5);
        }
      }
    }
  }
}

// For methods of whole distances, offsets, explicit positions, the compact form and batch rows give the same values.
TEST(Distances, EveryGeometryHasTheSameValues) {
  const v1::BiasMethod methods[] = {T5(4, true, true), T5(4, false, false),
                                    Kerple(v1::KERPLE_KERNEL_LOG, {1, 2, 3, 4}, {1, 0.5, 0.25, 2}),
                                    SandwichMethod(true, 4, 16)};
  constexpr int64_t kQ = 5, kK = 37, kHeads = 4;
  for (const v1::BiasMethod& method : methods) {
    SCOPED_TRACE(static_cast<int>(method.method_case()));
    const std::vector<double> dense = Values(Request(method, kQ, kK));
    const std::vector<double> compact = Values(Request(method, kQ, kK, v1::BIAS_FORM_COMPACT));
    ASSERT_EQ(compact.size(), static_cast<size_t>(kHeads * (kQ + kK - 1)));
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kQ; ++i) {
        for (int64_t j = 0; j < kK; ++j) {
          ASSERT_EQ(dense[(h * kQ + i) * kK + j], compact[h * (kQ + kK - 1) + j - i + kQ - 1]);
        }
      }
    }
    v1::GenerateBiasRequest request = Request(method, kQ, kK);
    std::vector<int64_t> keys, queries;  // reversed, and shifted by 1000
    for (int64_t j = 0; j < kK; ++j) keys.push_back(1000 + kK - 1 - j);
    for (int64_t i = 0; i < kQ; ++i) queries.push_back(1000 + kK - 1 - i);
    *request.mutable_geometry()->mutable_key_positions() = MakeTensor(DType::kINT64, {kK}, keys);
    *request.mutable_geometry()->mutable_query_positions() = MakeTensor(DType::kINT64, {1, kQ}, queries);
    const std::vector<double> explicit_positions = Values(request);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < kQ; ++i) {
        for (int64_t j = 0; j < kK; ++j) {
          ASSERT_EQ(explicit_positions[(h * kQ + i) * kK + j], dense[(h * kQ + kQ - 1 - i) * kK + kK - 1 - j]);
        }
      }
    }
    request = Request(method, kQ, kK);
    request.mutable_geometry()->mutable_query_offsets()->add_offset(kK - kQ);
    request.mutable_geometry()->mutable_query_offsets()->add_offset(3);
    request.mutable_geometry()->set_head_start(1);
    request.mutable_geometry()->set_head_count(2);
    const std::vector<double> batch = Values(request);
    request = Request(method, kQ, kK);
    request.mutable_geometry()->set_query_offset(3);
    const std::vector<double> second = Values(request);
    const size_t part = 2 * kQ * kK;
    EXPECT_EQ(std::vector<double>(batch.begin(), batch.begin() + part),
              std::vector<double>(dense.begin() + kQ * kK, dense.begin() + 3 * kQ * kK));
    EXPECT_EQ(std::vector<double>(batch.begin() + part, batch.end()),
              std::vector<double>(second.begin() + kQ * kK, second.begin() + 3 * kQ * kK));
  }
}

// Position minus distance is not a float64 there, so such sums must not be formed.
TEST(Distances, AtBothEndsOfWholeNumbers) {
  v1::BiasMethod t5;
  t5.mutable_t5()->set_bidirectional(true);
  for (const int64_t end : {-(int64_t{1} << 53), int64_t{1} << 53}) {
    for (int64_t apart = 1; apart <= 12; ++apart) {
      SCOPED_TRACE(testing::Message() << end << ", " << apart);
      const int64_t inwards = end < 0 ? apart : -apart;
      const std::vector<int64_t> queries = {end, end + inwards}, keys = {end, end, end + inwards};
      const auto at_ends = [&](v1::GenerateBiasRequest request) {
        *request.mutable_geometry()->mutable_query_positions() = MakeTensor(DType::kINT64, {2}, queries);
        *request.mutable_geometry()->mutable_key_positions() = MakeTensor(DType::kINT64, {3}, keys);
        return request;
      };
      const auto values = Values(at_ends(Request(Kerple(v1::KERPLE_KERNEL_POWER, {1}, {1}), 2, 3)));
      const auto indices = Integers(at_ends(Request(t5, 2, 3, v1::BIAS_FORM_INDEX)));
      for (int64_t i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
          const int64_t distance = keys[j] - queries[i];
          ASSERT_EQ(values[3 * i + j], -std::abs(static_cast<double>(distance)));
          ASSERT_EQ(indices[3 * i + j], reference::T5BucketOfIntegers(distance, 32, 128, true));
        }
      }
    }
  }
}

TEST(T5, IndexForms) {
  v1::BiasMethod method;
  method.mutable_t5()->set_bidirectional(false);
  v1::GenerateBiasRequest request = Request(method, 4, 30, v1::BIAS_FORM_INDEX);
  const std::vector<int32_t> index = Integers(request);
  EXPECT_EQ(ShapeOf(Call(request)->bias()), (std::vector<int64_t>{4, 30}));
  request = Request(method, 4, 30, v1::BIAS_FORM_COMPACT_INDEX);
  const std::vector<int32_t> compact = Integers(request);
  EXPECT_EQ(ShapeOf(Call(request)->bias()), (std::vector<int64_t>{33}));
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 30; ++j) {
      ASSERT_EQ(index[i * 30 + j], reference::T5BucketOfIntegers(j - i - 26, 32, 128, false));
      ASSERT_EQ(index[i * 30 + j], compact[j - i + 3]);
    }
  }
  request = Request(method, 2, 3, v1::BIAS_FORM_INDEX);
  *request.mutable_geometry()->mutable_query_positions() =
      MakeTensor(DType::kINT32, {2, 2}, std::vector<int32_t>{0, 100, 5, 1});
  EXPECT_EQ(ShapeOf(Call(request)->bias()), (std::vector<int64_t>{2, 2, 3}));
  EXPECT_THAT(Integers(request), ElementsAre(0, 0, 0, 30, 30, 29, 5, 4, 3, 1, 0, 0));
}

// Every method gives the same bytes on every instruction set, in every type, with a mask and added to scores.
TEST(EveryMethod, TheSameBytesOnEveryTarget) {
  v1::BiasMethod nope;
  nope.mutable_nope();
  const v1::BiasMethod methods[] = {T5(3, true, true), Kerple(v1::KERPLE_KERNEL_POWER, {1, 2, 3}, {1, 0.5, 0.25}),
                                    SandwichMethod(false, 3, 16), Swin(3, 3, 3), nope};
  for (const v1::BiasMethod& method : methods) {
    for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
      v1::AddBiasRequest request;
      *request.mutable_method() = method;
      request.mutable_mask()->set_causal(true);
      request.mutable_mask()->add_prefix_length(2);
      request.mutable_mask()->set_fill_kind(v1::MASK_FILL_LOWEST_FINITE);
      request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
      *request.mutable_scores() = MakeTensor(dtype, {2, 3, 9, 9}, Random(2 * 3 * 9 * 9, 7));
      std::string first;
      OnEveryTarget([&] {
        const auto response = Call(request);
        ASSERT_THAT(response, IsOk());
        if (first.empty()) first = response->scores().data();
        EXPECT_EQ(response->scores().data(), first);
      });
    }
  }
}

// Documents and prefixes, combined with all other masks, against one loop.
TEST(Masks, DocumentsAndPrefixes) {
  constexpr int64_t kB = 2, kQ = 6, kK = 9;
  std::mt19937 random(20240616);
  for (int repeat = 0; repeat < 200; ++repeat) {
    v1::GenerateBiasRequest request;
    request.mutable_method()->mutable_nope();
    request.mutable_geometry()->set_query_length(kQ);
    request.mutable_geometry()->set_key_length(kK);
    request.mutable_geometry()->set_query_offset(kK - kQ);
    request.set_form(v1::BIAS_FORM_DENSE);
    request.set_dtype(v1::DATA_TYPE_BF16);
    v1::Mask& mask = *request.mutable_mask();
    mask.set_fill_value(-1e9);
    mask.set_fully_masked_row(random() % 2 == 0 ? v1::FULLY_MASKED_ROW_FILL : v1::FULLY_MASKED_ROW_ZEROS);
    mask.set_causal(random() % 2 == 0);
    std::vector<int32_t> query_document(kB * kQ), key_document(kB * kK);
    std::vector<uint8_t> valid(kB * kK);
    for (auto& d : query_document) d = static_cast<int32_t>(random() % 3) - 1;
    for (auto& d : key_document) d = static_cast<int32_t>(random() % 3) - 1;
    for (auto& v : valid) v = random() % 4 != 0;
    std::vector<int64_t> prefix = {0, 0};
    const bool with_documents = random() % 2 == 0;
    if (with_documents) {
      *mask.mutable_query_documents() = MakeTensor(DType::kINT32, {kB, kQ}, query_document);
      *mask.mutable_key_documents() = MakeTensor(DType::kINT32, {kB, kK}, key_document);
    }
    if (mask.causal() && random() % 3 != 0) {
      for (auto& length : prefix) mask.add_prefix_length(length = static_cast<int64_t>(random() % 12));
    }
    if (random() % 2 == 0) mask.set_window_left(static_cast<int64_t>(random() % 5));
    if (random() % 3 == 0) mask.set_window_right(static_cast<int64_t>(random() % 5));
    *mask.mutable_key_valid() = MakeTensor(DType::kBOOL, {kB, kK}, valid);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    ASSERT_EQ(ShapeOf(response->bias()), (std::vector<int64_t>{kB, 1, kQ, kK}));
    const std::vector<double> values = ValuesOf(response->bias());
    for (int64_t b = 0; b < kB; ++b) {
      for (int64_t n = 0; n < kQ; ++n) {
        const int64_t i = n + kK - kQ;
        std::vector<bool> visible(kK);
        for (int64_t j = 0; j < kK; ++j) {
          visible[j] = valid[b * kK + j] && (!mask.causal() || j <= i || j < prefix[b]) &&
                       (!mask.has_window_left() || j >= i - mask.window_left()) &&
                       (!mask.has_window_right() || j <= i + mask.window_right()) &&
                       (!with_documents || query_document[b * kQ + n] == key_document[b * kK + j]);
        }
        const bool none = std::find(visible.begin(), visible.end(), true) == visible.end();
        const bool zeros = none && mask.fully_masked_row() == v1::FULLY_MASKED_ROW_ZEROS;
        for (int64_t j = 0; j < kK; ++j) {
          const double hidden = zeros ? 0 : reference::Round(DType::kBF16, -1e9);
          ASSERT_EQ(values[(b * kQ + n) * kK + j], visible[j] ? 0 : hidden)
              << "repeat " << repeat << ": " << b << n << j;
        }
      }
    }
  }
}

// 1 + 2^-11 + 2^-40 in float32 is 1 + 2^-11, a tie that float16 rounds down.
TEST(Masks, TheFillIsRoundedOnce) {
  v1::GenerateBiasRequest request;
  request.mutable_method()->mutable_nope();
  request.mutable_geometry()->set_query_length(2);
  request.mutable_geometry()->set_key_length(2);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  for (DType dtype : {DType::kFP16, DType::kBF16}) {
    const double half = dtype == DType::kFP16 ? 0x1p-11 : 0x1p-8;
    request.set_dtype(Wire(dtype));
    request.mutable_mask()->set_fill_value(1 + half + 0x1p-40);
    EXPECT_EQ(Values(request)[1], 1 + 2 * half);
  }
}

// NoPE that is added takes its heads from the scores.
TEST(Nope, OnlyMasks) {
  v1::AddBiasRequest request;
  request.mutable_method()->mutable_nope();
  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  const std::vector<double> scores = {-0.0, 1, 2, 3, 4, -5, 6, 7, 8, 9, 10, -11};
  *request.mutable_scores() = MakeTensor(DType::kFP32, {1, 3, 2, 2}, scores);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const std::vector<double> values = ValuesOf(response->scores());
  for (size_t n = 0; n < scores.size(); ++n) EXPECT_EQ(values[n], n % 4 == 1 ? -INFINITY : scores[n]);
  EXPECT_TRUE(std::signbit(values[0]));
}

}  // namespace
}  // namespace posenc::bias_methods_test
