#include "posenc/kernels/convert.h"

#include <bit>

#include "tests/reference/scalar_format.h"
#include "tests/unit/boundaries.h"
#include "tests/unit/elements.h"
#include "tests/unit/every_target.h"
#include "tests/unit/one_in.h"

namespace posenc {
namespace {

constexpr DType kHalves[] = {DType::kFP16, DType::kBF16};

uint16_t ScalarNarrow(DType dtype, double value) {
  return dtype == DType::kFP16 ? Narrow<Float16>(value) : Narrow<BFloat16>(value);
}

TEST(ConvertTest, ScalarWideningIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (DType dtype : kHalves) {
      const uint16_t element = static_cast<uint16_t>(bits);
      const float wide = dtype == DType::kFP16 ? Widen<Float16>(element) : Widen<BFloat16>(element);
      const double expected = reference::Decode16(dtype, element);
      EXPECT_EQ(std::isnan(wide), std::isnan(expected)) << bits;
      EXPECT_EQ(std::signbit(wide), std::signbit(expected)) << bits;
      if (!std::isnan(expected)) {
        EXPECT_EQ(wide, expected) << bits;
      }
    }
  }
}

TEST(ConvertTest, ScalarNarrowingRoundsOnce) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType dtype : kHalves) {
    for (uint32_t bits = 1; bits <= InfinityOf(dtype); ++bits) {
      const double middle = MiddleBelow(dtype, bits);
      ASSERT_EQ(ScalarNarrow(dtype, std::nextafter(middle, 0)), bits - 1) << Name(dtype);
      ASSERT_EQ(ScalarNarrow(dtype, middle), bits - bits % 2) << Name(dtype);
      ASSERT_EQ(ScalarNarrow(dtype, std::nextafter(middle, infinity)), bits) << Name(dtype);
      ASSERT_EQ(ScalarNarrow(dtype, -std::nextafter(middle, infinity)), bits | 0x8000) << Name(dtype);
    }
    for (double tiny : {0.0, std::numeric_limits<double>::denorm_min(), 0x1p-1022, 0x1p-200}) {
      EXPECT_EQ(ScalarNarrow(dtype, tiny), 0);
      EXPECT_EQ(ScalarNarrow(dtype, -tiny), 0x8000);
    }
    for (double huge : {0x1p128, 0x1p1023, infinity}) EXPECT_EQ(ScalarNarrow(dtype, huge), InfinityOf(dtype));
    // A NaN whose leading bits are zero must not become an infinity.
    const double nan = std::bit_cast<double>(uint64_t{0x7ff0000000000001});
    EXPECT_TRUE(std::isnan(reference::Decode16(dtype, ScalarNarrow(dtype, nan))));
  }
}

// Every float in order of its bits, which are rounded to each 16-bit element in turn.
void CheckEveryFloat(DType dtype) {
  constexpr size_t kChunk = 1 << 14;
  std::vector<uint32_t> in(kChunk);
  std::vector<uint16_t> expected(kChunk), out(kChunk);
  const auto first_of = [dtype](uint32_t element) {
    return std::bit_cast<uint32_t>(static_cast<float>(MiddleBelow(dtype, element))) + element % 2;
  };
  for (uint32_t sign : {0u, 0x8000u}) {
    uint32_t element = 0;
    uint32_t next = first_of(1);
    for (uint64_t begin = 0; begin < 0x80000000; begin += kChunk * OneIn()) {
      for (size_t i = 0; i < kChunk; ++i) in[i] = sign << 16 | static_cast<uint32_t>(begin + i);
      Convert(DType::kFP32, dtype, in.data(), out.data(), kChunk);
      if (begin > 0x7f800000) {
        for (uint16_t nan : out) ASSERT_GT(nan & 0x7fffu, InfinityOf(dtype));
        continue;
      }
      for (uint64_t i = begin; i < begin + kChunk;) {
        while (i >= next) {
          ++element;
          next = element < InfinityOf(dtype) ? first_of(element + 1) : 0xffffffff;
        }
        const uint64_t end = std::min<uint64_t>(next, begin + kChunk);
        std::fill(expected.begin() + (i - begin), expected.begin() + (end - begin), sign | element);
        i = end;
      }
      if (begin == 0x7f800000) std::copy(out.begin() + 1, out.end(), expected.begin() + 1);  // NaNs, checked below
      ASSERT_EQ(out, expected) << begin;
      if (begin != 0x7f800000) continue;
      for (size_t i = 1; i < kChunk; ++i) ASSERT_GT(out[i] & 0x7fffu, InfinityOf(dtype));
    }
  }
}

// The processor's own conversions, where it has them. The test below tries the integer ones around every boundary.
TEST(ConvertTest, NarrowsEveryFloatOnTheBestTarget) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "minutes under a sanitizer, which sees as much in the others";
#endif
  for (DType dtype : kHalves) CheckEveryFloat(dtype);
}

// Any bits at all, of every exponent in turn.
template <class Real, class Bits>
void AppendEveryExponent(std::mt19937_64& random, std::vector<Real>& values) {
  constexpr int kMantissaBits = std::numeric_limits<Real>::digits - 1;
  for (size_t n = 0; n < 1 << 16; ++n) {
    const Bits fraction = static_cast<Bits>(random()) >> (sizeof(Bits) * 8 - kMantissaBits);
    values.push_back(std::bit_cast<Real>(static_cast<Bits>(n) << kMantissaBits | fraction));
  }
}

// Converts on every target and compares with the reference, element by element.
template <class From>
void CheckConvert(DType from, DType to, const std::vector<From>& values) {
  Block expected(values.size() * SizeOf(to)), out(expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    reference::Encode(to, reference::Decode(from, reinterpret_cast<const std::byte*>(&values[i])),
                      expected.data() + i * SizeOf(to));
  }
  MakeNansEqual(to, expected.data(), values.size());
  OnEveryTarget([&] {
    Convert(from, to, values.data(), out.data(), values.size());
    MakeNansEqual(to, out.data(), values.size());
    ExpectSameBytes(expected, out);
  });
}

TEST(ConvertTest, WidensEveryElementOnEveryTarget) {
  std::vector<uint16_t> every(0x10000);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) every[bits] = static_cast<uint16_t>(bits);
  for (DType from : kHalves) {
    for (DType to : {DType::kFP32, DType::kFP64, DType::kFP16, DType::kBF16}) {
      SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
      CheckConvert(from, to, every);
    }
  }
}

TEST(ConvertTest, NarrowsOnceOnEveryTarget) {
  std::mt19937_64 random(PrintedSeed(20240604));
  for (DType to : kHalves) {
    SCOPED_TRACE(Name(to));
    std::vector<float> floats = AroundBoundaries<float>(to);
    AppendEveryExponent<float, uint32_t>(random, floats);
    CheckConvert(DType::kFP32, to, floats);
    std::vector<double> doubles = AroundBoundaries<double>(to);
    AppendEveryExponent<double, uint64_t>(random, doubles);
    CheckConvert(DType::kFP64, to, doubles);
  }
}

TEST(ConvertTest, ConvertsBetweenFloatAndDouble) {
  std::mt19937_64 random(PrintedSeed(20240605));
  std::vector<float> floats;
  AppendEveryExponent<float, uint32_t>(random, floats);
  CheckConvert(DType::kFP32, DType::kFP64, floats);
  // The middle between the largest float and 2^128 and its neighbours, half the smallest subnormal and its neighbours.
  std::vector<double> doubles = {0x1.ffffffp127,
                                 0x1.fffffefffffffp127,
                                 0x1.ffffff0000001p127,
                                 0x1p1023,
                                 0x1p-150,
                                 0x1.0000000000001p-150,
                                 0x1.fffffffffffffp-151,
                                 0x1p-1074,
                                 0.0};
  for (size_t n = doubles.size(); n > 0; --n) doubles.push_back(-doubles[n - 1]);
  AppendEveryExponent<double, uint64_t>(random, doubles);
  CheckConvert(DType::kFP64, DType::kFP32, doubles);
}

// Lengths that no vector divides, at any address, with nothing touched beyond either end.
TEST(ConvertTest, ConvertsAnyLengthAndAlignment) {
  std::mt19937_64 random(PrintedSeed(20240606));
  constexpr DType kTypes[] = {DType::kFP64, DType::kFP32, DType::kFP16, DType::kBF16};
  for (DType from : kTypes) {
    for (DType to : kTypes) {
      for (size_t count = 0; count <= 70; ++count) {
        SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)) + " " + std::to_string(count));
        Block in(count * SizeOf(from), count % 3), expected(count * SizeOf(to) + 1, count % 5), out = expected;
        FillWithElements(from, random, in.data(), count);
        for (size_t i = 0; i < count; ++i) {
          const double value = reference::Decode(from, in.data() + i * SizeOf(from));
          reference::Encode(to, value, expected.data() + i * SizeOf(to));
        }
        MakeNansEqual(to, expected.data(), count);
        expected.data()[expected.size() - 1] = std::byte{0xa5};
        OnEveryTarget([&] {
          std::memset(out.data(), 0xa5, out.size());
          Convert(from, to, in.data(), out.data(), count);
          MakeNansEqual(to, out.data(), count);
          ExpectSameBytes(expected, out);
        });
      }
    }
  }
}

TEST(ConvertTest, KeepsAnArrayConvertedToItselfInPlace) {
  std::vector<float> values = {1, 2, 3};
  Convert(DType::kFP32, DType::kFP32, values.data(), values.data(), values.size());
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
}

}  // namespace
}  // namespace posenc
