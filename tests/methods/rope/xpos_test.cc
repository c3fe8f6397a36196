// xPos: entries against MPFR, and properties of scores, gradients and inverses.
#include <gtest/gtest.h>

#include <random>

#include "posenc/kernels/sincos_slow.h"
#include "posenc/rotary/xpos_rows.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/mpfr_number.h"
#include "tests/reference/sincos_oracle.h"
#include "tests/service/call.h"

namespace posenc::xpos_test {
namespace {

constexpr uint32_t kSeed = 20221220;

template <int kDigits>
reference::Number<kDigits> Cos(const reference::Number<kDigits>& x) {
  reference::Number<kDigits> y;
  mpfr_cos(const_cast<mpfr_ptr>(y.get()), x.get(), MPFR_RNDN);
  return y;
}
template <int kDigits>
reference::Number<kDigits> Sin(const reference::Number<kDigits>& x) {
  reference::Number<kDigits> y;
  mpfr_sin(const_cast<mpfr_ptr>(y.get()), x.get(), MPFR_RNDN);
  return y;
}

struct Table {
  Frequencies frequencies;
  DType dtype;
  bool key;
  bool divide = false;
  double scale = 1;
  std::vector<double> positions;
  std::vector<double> inv_freq;
  Xpos xpos{512, 100};
  std::vector<std::byte> cos, sin;

  void Compute() {
    const size_t entries = positions.size() * inv_freq.size();
    cos.resize(entries * SizeOf(dtype));
    sin.resize(entries * SizeOf(dtype));
    const XposPlan plan = MakeXposPlan(frequencies, xpos, 2 * static_cast<int64_t>(inv_freq.size()));
    RunWithXpos({.frequencies = frequencies,
                 .dtype = dtype,
                 .positions = positions.data(),
                 .inv_freq = inv_freq.data(),
                 .rows = positions.size(),
                 .pairs = inv_freq.size(),
                 .scale = scale,
                 .divide = divide,
                 .cos = cos.data(),
                 .sin = sin.data()},
                plan, key);
  }
};

// (2i + 0.4 d) / (1.4 d), to the power of (p - centre) / scale_base or its negative.
template <int kDigits>
reference::Number<kDigits> Scale(const Table& table, size_t i, double position) {
  using N = reference::Number<kDigits>;
  const N d(2.0 * static_cast<double>(table.inv_freq.size()));
  const N zeta = (N(2.0 * static_cast<double>(i)) + N(4) / N(10) * d) / (N(14) / N(10) * d);
  const N exponent = (N(position) - N(*table.xpos.centre)) / N(*table.xpos.scale_base);
  return Pow(zeta, table.key != table.divide ? N(0) - exponent : exponent);
}

double RoundTo(DType dtype, const reference::Number<300>& x) {
  switch (dtype) {
    case DType::kFP32: return x.RoundedTo<24>();
    case DType::kFP16: {
      using N = reference::Number<300>;
      const N least(0x1p-24);  // numbers below 2^-14 are multiples of it; no test entry is a tie
      const bool subnormal = x < N(0x1p-14) && x > N(-0x1p-14);
      return subnormal ? (Floor(x / least + N(0.5)) * least).ToDouble() : x.RoundedTo<11>();
    }
    case DType::kBF16: return x.RoundedTo<8>();
    default: return x.RoundedTo<53>();
  }
}

std::vector<double> ThetaFrequencies(size_t pairs) {
  std::vector<double> inv_freq;
  for (size_t i = 0; i < pairs; ++i) {
    inv_freq.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return inv_freq;
}

TEST(Xpos, ExactEntriesAreRoundedOnce) {
  std::mt19937 random(kSeed);
  RecordProperty("seed", kSeed);
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64}) {
    for (bool key : {false, true}) {
      for (bool divide : {false, true}) {
        Table table{Frequencies::kExact, dtype, key, divide, divide ? 1.25 : 0.8125};
        table.inv_freq = ThetaFrequencies(31);
        table.positions = {0, 100, -3, 99.5, 612};
        for (int n = 0; n < (dtype == DType::kFP64 ? 10 : 150); n += OneIn()) {
          table.positions.push_back(std::uniform_int_distribution<int>(0, 3000)(random));
        }
        table.Compute();
        for (size_t n = 0; n < table.positions.size() * 31; ++n) {
          using N = reference::Number<300>;
          const double position = table.positions[n / 31];
          const N angle = N(position) * N(table.inv_freq[n % 31]);
          const N scale = Scale<300>(table, n % 31, position) * (divide ? N(1) / N(1.25) : N(0.8125));
          ASSERT_EQ(Element(table.cos.data(), n, dtype), RoundTo(dtype, Cos(angle) * scale))
              << n << " at " << position << " " << Name(dtype);
          ASSERT_EQ(Element(table.sin.data(), n, dtype), RoundTo(dtype, Sin(angle) * scale))
              << n << " at " << position << " " << Name(dtype);
        }
      }
    }
  }
}

// Positions, centres, scale bases and attention scalings of all sizes; the entries include infinities and subnormals.
TEST(Xpos, RandomTablesAreCorrectlyRounded) {
  std::mt19937 random(kSeed + 1);
  RecordProperty("seed", kSeed + 1);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (size_t n = 0; n < 120 * Times() / OneIn(); ++n) {
      Table table{Frequencies::kExact, dtype, random() % 2 == 0, random() % 2 == 0};
      table.scale = n % 4 == 0 ? 1 : std::exp2(between(-3, 3)) * (n % 4 == 1 ? -1 : 1);
      table.inv_freq = ThetaFrequencies(1 + n % 37);
      table.xpos = {std::exp2(between(4, 12)), std::round(between(-4096, 4096))};
      for (int row = 0; row < 16; ++row) {
        table.positions.push_back(std::round(between(-1, 1) * std::exp2(between(0, row % 8 == 0 ? 40 : 14))));
        if (row % 4 == 1) table.positions.back() += between(0, 1);
      }
      table.positions[15] = *table.xpos.centre;
      table.Compute();
      const size_t pairs = table.inv_freq.size();
      for (size_t k = 0; k < 16 * pairs; ++k) {
        const double position = table.positions[k / pairs];
        using N = reference::Number<700>;
        const N attention(table.scale);
        const N scale = Scale<700>(table, k % pairs, position) * (table.divide ? N(1) / attention : attention);
        const bool exact = position == *table.xpos.centre && !table.divide;
        const CosSin want = ScaledSinCos(position, table.inv_freq[k % pairs], dtype, [&](mpfr_ptr value) {
          return mpfr_mul(value, value, scale.get(), MPFR_RNDN) == 0 && exact ? 0 : 1;
        });
        ASSERT_EQ(Element(table.cos.data(), k, dtype), want.cos) << n << " at " << position << " " << Name(dtype);
        ASSERT_EQ(Element(table.sin.data(), k, dtype), want.sin) << n << " at " << position << " " << Name(dtype);
      }
    }
  }
}

TEST(Xpos, EveryTargetGivesTheSameBytes) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64}) {
    Table table{Frequencies::kExact, dtype, true, true, 0.7};
    table.inv_freq = ThetaFrequencies(37);
    for (int n = 0; n < (dtype == DType::kFP64 ? 8 : 300); ++n)
      table.positions.push_back(n % 9 == 0 ? n * 1e6 : n - 40);
    table.Compute();
    Table other = table;
    OnEveryTarget([&] {
      other.Compute();
      EXPECT_TRUE(other.cos == table.cos && other.sin == table.sin) << Name(dtype);
    });
  }
}

// The libraries' chain with each step rounded. E is the type's number.
template <int kDigits>
void ExpectChain(Table table) {
  using E = reference::Number<kDigits>;
  using P = reference::Number<53>;
  const size_t pairs = 17;
  table.inv_freq = ThetaFrequencies(pairs);
  for (double& f : table.inv_freq) f = E(f).ToDouble();
  for (int n = 0; n < 60; ++n) table.positions.push_back(n * n + 0.25);
  table.Compute();
  const P d(2.0 * pairs);
  for (size_t n = 0; n < table.positions.size() * pairs; ++n) {
    const size_t i = n % pairs;
    const E position(table.positions[n / pairs]), angle = position * E(table.inv_freq[i]);
    const E zeta = (E(2.0 * static_cast<double>(i)) + E(P(0.4) * d)) / E(P(1.4) * d);
    E scale = Pow(zeta, (position - E(*table.xpos.centre)) / E(*table.xpos.scale_base));
    if (table.key) scale = E(1) / scale;
    for (const auto& [value, data] : {std::pair{Cos(angle), &table.cos}, {Sin(angle), &table.sin}}) {
      const E attention = table.divide ? value / E(table.scale) : value * E(table.scale);
      const E entry = table.divide ? attention / scale : attention * scale;
      ASSERT_EQ(Element(data->data(), n, table.dtype), entry.ToDouble()) << n;
    }
  }
}

TEST(Xpos, FrameworksChain) {
  for (bool key : {false, true}) {
    for (bool divide : {false, true}) {
      ExpectChain<24>({Frequencies::kFloat32, DType::kFP32, key, divide, 1.5});
      ExpectChain<53>({Frequencies::kFloat64, DType::kFP64, key, divide, 1.5});
    }
  }
}

// d = 20, i = 3: zeta is 1/2. At angle 0 and one scale_base from the centre a scaling of 1 + 2^-24 is an exact tie.
TEST(Xpos, TiesGoToEven) {
  Table table{Frequencies::kExact, DType::kFP32, false, false, 1 + 0x1p-24};
  table.inv_freq = ThetaFrequencies(10);
  table.positions = {0};
  table.xpos = {512, -512};
  table.Compute();
  EXPECT_EQ(Element(table.cos.data(), 3, DType::kFP32), 0.5);
  table.scale = 1 + 3 * 0x1p-24;
  table.Compute();
  EXPECT_EQ(Element(table.cos.data(), 3, DType::kFP32), 0.5 * (1 + 0x1p-22));
}

// Far from the centre the scale exceeds every format; the sine of angle zero stays zero.
TEST(Xpos, FarFromTheCentre) {
  for (bool key : {false, true}) {
    Table table{Frequencies::kExact, DType::kFP32, key};
    table.inv_freq = {1, 0};
    table.positions = {0x1p50};
    table.Compute();
    EXPECT_EQ(std::abs(Element(table.cos.data(), 0, DType::kFP32)), key ? INFINITY : 0);
    EXPECT_EQ(Element(table.cos.data(), 1, DType::kFP32), key ? INFINITY : 0);
    EXPECT_EQ(Element(table.sin.data(), 1, DType::kFP32), 0);
  }
}

// The scale exceeds MPFR's exponent range, 2^(2^62): the entry is zero or infinity with the sign of its cosine or sine.
TEST(Xpos, ScalesBeyondEveryRange) {
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64}) {
    for (const bool key : {false, true}) {
      for (const double exponent : {1e300, -1e300}) {
        Table table{Frequencies::kExact, dtype, key};
        table.inv_freq = {1, 2, 0};
        table.positions = {1, -1, 4, -4};
        table.xpos = {1e-10, -exponent * 1e-10};
        table.Compute();
        // Every zeta of three pairs is below 1, so for q the positive exponent underflows.
        const double magnitude = (exponent > 0) == key ? INFINITY : 0.0;
        for (size_t n = 0; n < table.positions.size() * 3; ++n) {
          const double angle = table.positions[n / 3] * table.inv_freq[n % 3];
          const double cos = Element(table.cos.data(), n, dtype), sin = Element(table.sin.data(), n, dtype);
          EXPECT_EQ(cos, std::copysign(magnitude, std::cos(angle))) << Name(dtype) << " " << angle;
          EXPECT_EQ(std::signbit(cos), std::cos(angle) < 0) << Name(dtype) << " " << angle;
          EXPECT_EQ(sin, angle == 0 ? 0.0 : std::copysign(magnitude, std::sin(angle))) << Name(dtype) << " " << angle;
          EXPECT_EQ(std::signbit(sin), std::sin(angle) < 0) << Name(dtype) << " " << angle;
        }
      }
    }
  }
}

// A product loses its digits before a large factor restores its size: 1e-18 times 2.6e-304, times 1e300.
TEST(Xpos, SmallProductsAreNotProven) {
  Table table{Frequencies::kExact, DType::kFP32, false, false, 1e300};
  table.inv_freq = {1e-18};
  table.positions = {1};
  table.xpos = {1, -557};
  table.Compute();
  using N = reference::Number<300>;
  const N expected = Sin(N(1e-18)) * Scale<300>(table, 0, 1) * N(1e300);
  EXPECT_EQ(Element(table.sin.data(), 0, DType::kFP32), RoundTo(DType::kFP32, expected));
  EXPECT_GT(expected, N(1e-23));
}

v1::ApplyRotaryRequest Request(const std::vector<double>& q, const std::vector<double>& k, int64_t position) {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->mutable_rope_parameters()->set_rope_type("default");
  settings->set_rotary_dim(64);
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  settings->mutable_xpos()->set_centre(2048);
  request.set_layout(v1::LAYOUT_THD);
  request.mutable_positions()->set_offset(position);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 64}, q);
  *request.mutable_k()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 64}, k);
  return request;
}

std::vector<double> Random(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(64);
  for (double& value : values) value = static_cast<float>(normal(random));
  return values;
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t n = 0; n < a.size(); ++n) sum += a[n] * b[n];
  return sum;
}

// q_m . k_n depends on m - n only. The scales of far keys are small.
TEST(Xpos, ScoreDependsOnTheDistanceOnly) {
  const std::vector<double> q = Random(1), k = Random(2);
  for (int64_t distance : {0, 1, 40, 700}) {
    std::vector<double> scores;
    for (int64_t n : {0, 17, 1000, 3000}) {
      const auto at_query = Call(Request(q, k, n + distance)), at_key = Call(Request(q, k, n));
      ASSERT_THAT(at_query, IsOk());
      ASSERT_THAT(at_key, IsOk());
      scores.push_back(Dot(ValuesOf(at_query->q()), ValuesOf(at_key->k())));
      EXPECT_NEAR(scores.back(), scores.front(), 2e-5) << distance << " from " << n;
    }
  }
}

TEST(Xpos, InverseUndoesForwardAndTransposeIsTheAdjoint) {
  const std::vector<double> q = Random(1), k = Random(2), other = Random(3);
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32}) {
    v1::ApplyRotaryRequest request = Request(q, k, 100);
    request.mutable_precision()->set_preset(preset);
    const auto forward = Call(request);
    ASSERT_THAT(forward, IsOk());
    v1::ApplyRotaryRequest back = request;
    *back.mutable_q()->mutable_tensor() = forward->q();
    *back.mutable_k()->mutable_tensor() = forward->k();
    back.set_direction(v1::DIRECTION_INVERSE);
    const auto undone = Call(back);
    ASSERT_THAT(undone, IsOk());
    const std::vector<double> q_again = ValuesOf(undone->q()), k_again = ValuesOf(undone->k());
    for (size_t n = 0; n < q.size(); ++n) {
      EXPECT_NEAR(q_again[n], q[n], 2e-6);
      EXPECT_NEAR(k_again[n], k[n], 2e-6);
    }
    v1::ApplyRotaryRequest adjoint = Request(other, other, 100);
    adjoint.mutable_precision()->set_preset(preset);
    adjoint.set_direction(v1::DIRECTION_TRANSPOSE);
    const auto transposed = Call(adjoint);
    ASSERT_THAT(transposed, IsOk());
    EXPECT_NEAR(Dot(ValuesOf(forward->q()), other), Dot(q, ValuesOf(transposed->q())), 1e-4);
    EXPECT_NEAR(Dot(ValuesOf(forward->k()), other), Dot(k, ValuesOf(transposed->k())), 1e-4);
  }
}

// Rotating with the tables for q and k gives the bytes of ApplyRotary. k alone is sent with an empty q.
TEST(Xpos, TablesOfBothOperands) {
  const std::vector<double> q = Random(1), k = Random(2);
  v1::ApplyRotaryRequest request = Request(q, k, 100);
  const auto rotated = Call(request);
  ASSERT_THAT(rotated, IsOk());
  v1::GenerateTableRequest table;
  *table.mutable_rotary() = request.rotary();
  *table.mutable_positions() = request.positions();
  table.set_count(1);
  table.set_dtype(v1::DATA_TYPE_FP32);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  EXPECT_THAT(Call(table), IsInvalid("MISSING", "operand"));
  for (bool key : {false, true}) {
    table.set_operand(key ? v1::OPERAND_KEY : v1::OPERAND_QUERY);
    const auto answer = Call(table);
    ASSERT_THAT(answer, IsOk());
    const std::vector<double> c = ValuesOf(answer->cos()), s = ValuesOf(answer->sin()),
                              y = ValuesOf(key ? rotated->k() : rotated->q());
    for (size_t i = 0; i < 32; ++i) {
      const auto x0 = static_cast<float>((key ? k : q)[i]), x1 = static_cast<float>((key ? k : q)[i + 32]);
      const float a = x0 * static_cast<float>(c[i]), b = x1 * static_cast<float>(s[i]);
      ASSERT_EQ(y[i], a - b);
    }
  }
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 0, 64}, std::vector<double>{});
  const auto alone = Call(request);
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ(alone->k().data(), rotated->k().data());
}

}  // namespace
}  // namespace posenc::xpos_test
