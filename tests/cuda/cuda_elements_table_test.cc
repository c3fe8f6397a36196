// The CUDA kernels' table entries, compiled for the CPU: bytes against the CPU kernel, error bounds against MPFR.
#include <bit>
#include <cmath>

#include "cuda/elements/table.h"
#include "gtest/gtest.h"
#include "posenc/kernels/first_scale.h"
#include "posenc/kernels/sincos_slow.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/sincos_hard_cases.h"
#include "tests/reference/mpfr_number.h"

namespace posenc::cuda_elements_table_test {
namespace {

static_assert(static_cast<int>(Frequencies::kFloat64) == POSENC_FLOAT64);
static_assert(static_cast<int>(Frequencies::kFloat32) == POSENC_FLOAT32);

constexpr uint64_t kSeed = 20250612;
constexpr DType kDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};
constexpr Frequencies kRecipes[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};

// Makes the recipe that a plugin makes from posenc_table.
cuda::TableRecipe RecipeOf(const SinCosRows& work, bool negate_sin) {
  cuda::TableRecipe recipe = {static_cast<posenc_dtype>(work.dtype),
                              static_cast<posenc_frequencies>(work.frequencies),
                              {1.0, 0.0},
                              true,
                              1.0,
                              work.scale,
                              work.divide,
                              negate_sin};
  if (work.frequencies != Frequencies::kExact || work.scale == 1.0) return recipe;
  recipe.zero_cos = SinCosSlow(work, 0.0, 0.0).cos;
  const FirstScale first = FirstScaleOf(work.scale, work.divide);
  recipe.first_scale = first.scale;
  recipe.scale_in_range = first.in_range;
  return recipe;
}

struct Inputs {
  std::vector<double> positions;
  std::vector<double> inv_freq;
};

// Computes the table both ways, compares all bytes, and returns how many entries were not proven.
size_t ExpectSameTable(SinCosRows work, const Inputs& inputs, bool negate_sin) {
  work.positions = inputs.positions.data();
  work.inv_freq = inputs.inv_freq.data();
  work.rows = inputs.positions.size();
  work.pairs = inputs.inv_freq.size();
  const size_t entries = work.rows * work.pairs, element = SizeOf(work.dtype);
  Block expected(2 * entries * element), actual(expected.size());
  work.cos = expected.data();
  work.sin = expected.data() + entries * element;
  ComputeSinCosRows(work, 0, work.rows);

  const cuda::TableRecipe recipe = RecipeOf(work, negate_sin);
  const bool wide = cuda::IsWide(recipe.frequencies, recipe.dtype);
  size_t unproven = 0;
  for (size_t i = 0; i < entries; ++i) {
    const double position = cuda::PositionIn(recipe.frequencies, work.positions[i / work.pairs]);
    const double inv_freq = work.inv_freq[i % work.pairs];
    cuda::Entry entry;
    if (!(wide ? cuda::FirstRounded<true> : cuda::FirstRounded<false>)(recipe, position, inv_freq, entry)) {
      ++unproven;
      const CosSin slow = SinCosSlow(work, position, inv_freq);
      entry = {slow.cos, slow.sin};
    }
    entry = cuda::Finished(recipe, entry);
    if (negate_sin) entry.sin = -entry.sin;
    for (const double value : {entry.cos, entry.sin}) {
      EXPECT_TRUE(std::isnan(value) || value == reference::Round(work.dtype, value)) << value;
    }
    reference::Encode(work.dtype, entry.cos, actual.data() + i * element);
    reference::Encode(work.dtype, entry.sin, actual.data() + (entries + i) * element);
  }
  MakeNansEqual(work.dtype, expected.data(), 2 * entries);
  MakeNansEqual(work.dtype, actual.data(), 2 * entries);
  ExpectSameBytes(expected, actual);
  return unproven;
}

template <class Check>
void OnEveryRecipe(const Check& check) {
  size_t n = 0;
  for (const Frequencies frequencies : kRecipes) {
    for (const DType dtype : kDTypes) {
      for (const double scale : {1.0, 1.1386294361119891, -3.75, 0.1, 1e5}) {
        for (const bool divide : {false, true}) {
          SinCosRows work{};
          work.frequencies = frequencies;
          work.dtype = dtype;
          work.scale = scale;
          work.divide = divide;
          SCOPED_TRACE("recipe " + std::to_string(static_cast<int>(frequencies)) + " " + std::string(Name(dtype)) +
                       " scale " + std::to_string(scale) + (divide ? " divided by" : ""));
          check(work, n++ % 2 == 0);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

double FrequencyFor(const SinCosRows& work, double inv_freq) {
  return work.frequencies == Frequencies::kFloat32 ? static_cast<float>(inv_freq) : inv_freq;
}

TEST(CudaElementsTableTest, OrdinaryEntriesAreProven) {
  std::mt19937_64 random(PrintedSeed(kSeed));
  size_t entries = 0, unproven = 0;
  OnEveryRecipe([&](const SinCosRows& work, bool negate_sin) {
    Inputs inputs;
    for (int i = 0; i < 40; ++i) inputs.positions.push_back(i);
    for (int i = 0; i < 10; ++i) inputs.positions.push_back(-0.25 * i);
    for (int i = 0; i < 50; ++i) inputs.positions.push_back(static_cast<double>(random() >> 33));
    for (int pair = 0; pair < 16; ++pair) {
      inputs.inv_freq.push_back(FrequencyFor(work, std::pow(random() % 2 == 0 ? 1e4 : 5e5, -pair / 16.0)));
    }
    entries += inputs.positions.size() * inputs.inv_freq.size();
    unproven += ExpectSameTable(work, inputs, negate_sin);
  });
  EXPECT_EQ(entries, 3 * 4 * 5 * 2 * 100 * 16u);
  EXPECT_LE(unproven, entries / 10000) << "the share that docs/exact-tables.md measures is far smaller";
}

TEST(CudaElementsTableTest, ExtremeInputs) {
  size_t unproven = 0;
  const auto check = [&](const SinCosRows& work, bool negate_sin) {
    const std::vector<double> positions = {0.0,     -0.0, 1e300, -1e300, 5e-324,  1.7976931348623157e308,
                                           -1e-6,   0.5,  1e15,  1e20,   -1e-300, 0x1p44,
                                           -0x1p45, 3e38, 1e-40};
    std::vector<double> inv_freq = {1.0, 0.0, 0x1p-149, 0.5, 0x1p-20, 0x1p100, -0.0, -0.75};
    if (work.frequencies != Frequencies::kFloat32) {
      for (const double wide : {5e-324, 1e-310, 1e300, 0x1p-500, 0x1p-501}) inv_freq.push_back(wide);
    }
    unproven += ExpectSameTable(work, {positions, inv_freq}, negate_sin);
  };
  OnEveryRecipe(check);
  for (const double scale : {0.0, 3e38, 1e-40, 1e306, 1e-306, -5e-324, 65520.0}) {
    for (const Frequencies frequencies : kRecipes) {
      for (const DType dtype : kDTypes) {
        for (const bool divide : {false, true}) {
          if (divide && scale == 0) continue;
          SinCosRows work{};
          work.frequencies = frequencies;
          work.dtype = dtype;
          work.scale = scale;
          work.divide = divide;
          SCOPED_TRACE(std::to_string(static_cast<int>(frequencies)) + std::string(Name(dtype)) +
                       std::to_string(scale));
          check(work, divide);
        }
      }
    }
  }
  EXPECT_GT(unproven, 0u);
}

// Cosines and sines are so near to a boundary that some cannot be proven. None may be proven wrong.
TEST(CudaElementsTableTest, HardEntries) {
  size_t entries = 0, unproven = 0;
  for (const DType dtype : kDTypes) {
    std::vector<HardCase> cases = AnglesOfBoundaries(dtype, 150, 20, kSeed + 1);
    const int smallest = dtype == DType::kFP64 ? -60 : -40;  // closer than the error of wide or narrow entries
    for (const HardCase& hard : AnglesOnBoundaries(dtype, 150, smallest, kSeed + 2)) cases.push_back(hard);
    if (dtype != DType::kFP64) {
      for (const HardCase& hard : ScalesOnBoundaries(dtype, 150, kSeed + 3)) cases.push_back(hard);
    }
    for (const HardCase& hard : cases) {
      SinCosRows work{};
      work.frequencies = Frequencies::kExact;
      work.dtype = dtype;
      work.scale = hard.scale;
      SCOPED_TRACE(Name(dtype));
      unproven += ExpectSameTable(work, {{hard.position}, {hard.inv_freq}}, false);
      ++entries;
    }
  }
  EXPECT_GT(unproven, entries / 10) << "these are no hard cases";
  EXPECT_LT(unproven, entries) << "nothing is proven";
}

// The error of hi + lo, as a multiple of the bound.
double ErrorOverBound(DoubleDouble value, mpfr_srcptr exact, double relative, double per_turn, double turns) {
  const reference::Number<300> sum = reference::Number<300>(value.hi) + reference::Number<300>(value.lo);
  mpfr_t error;
  mpfr_init2(error, 300);
  mpfr_sub(error, sum.get(), exact, MPFR_RNDN);
  const double result = std::abs(mpfr_get_d(error, MPFR_RNDN));
  mpfr_clear(error);
  return result / (std::abs(value.hi) * relative + turns * per_turn);
}

TEST(CudaElementsTableTest, ErrorsAreFarBelowTheBounds) {
  std::mt19937_64 random(PrintedSeed(kSeed + 4));
  double narrow_most = 0, wide_most = 0;
  mpfr_t angle, cos, sin;
  mpfr_inits2(300, angle, cos, sin, static_cast<mpfr_ptr>(nullptr));
  for (int i = 0; i < 20000; ++i) {
    // Angles of every magnitude, and near multiples of pi/4.
    const double fraction = std::ldexp(static_cast<double>(random() >> 11), -53);
    double x = std::ldexp(1 + fraction, static_cast<int>(random() % 74) - 30);
    if (i % 2 == 0)
      x = std::ldexp(kHalfPi1, -1) * std::floor(1 + std::ldexp(fraction, static_cast<int>(random() % 44)));
    if (x > kFastMax) continue;
    const DoubleDouble sum = {i % 3 == 0 ? -x : x, std::ldexp(x * (fraction - 0.5), -53)};
    mpfr_set_d(angle, sum.hi, MPFR_RNDN);
    mpfr_add_d(angle, angle, sum.lo, MPFR_RNDN);
    mpfr_sin_cos(sin, cos, angle, MPFR_RNDN);
    const cuda::NarrowAngle narrow = cuda::NarrowSinCos(sum);
    const cuda::WideAngle wide = cuda::WideSinCos(sum);
    for (const auto& [value, exact] : {std::pair{narrow.cos, cos}, {narrow.sin, sin}}) {
      narrow_most =
          std::max(narrow_most, ErrorOverBound({value, 0.0}, exact, kNarrowRelative, kNarrowPerTurn, narrow.turns));
    }
    for (const auto& [value, exact] : {std::pair{wide.cos, cos}, {wide.sin, sin}}) {
      wide_most = std::max(wide_most, ErrorOverBound(value, exact, kWideRelative, kWidePerTurn, wide.turns));
    }
  }
  mpfr_clears(angle, cos, sin, static_cast<mpfr_ptr>(nullptr));
  std::printf("of the bounds: narrow %.3f, wide %.3f\n", narrow_most, wide_most);
  EXPECT_LT(narrow_most, 0.25);
  EXPECT_LT(wide_most, 0.25);
  EXPECT_GT(narrow_most, 0.01);
  EXPECT_GT(wide_most, 0.001);
}

}  // namespace
}  // namespace posenc::cuda_elements_table_test
