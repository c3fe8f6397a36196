#include "posenc/kernels/convert.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tests/kernels/boundaries.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/scalar_format.h"

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

// The 16-bit elements that floats, in ascending order, round to. A NaN gives the quiet one.
class Rounded {
 public:
  explicit Rounded(DType dtype) : dtype_(dtype), next_(First(1)) {}

  uint16_t operator()(uint32_t bits) {
    if (bits > 0x7f800000) return QuietNan(dtype_);
    while (bits >= next_) {
      ++element_;
      next_ = element_ < InfinityOf(dtype_) ? First(element_ + 1) : 0xffffffff;
    }
    return static_cast<uint16_t>(element_);
  }

  static uint16_t QuietNan(DType dtype) { return static_cast<uint16_t>(InfinityOf(dtype) | InfinityOf(dtype) >> 1); }

 private:
  // The first float that rounds to an element.
  uint32_t First(uint32_t element) const {
    return std::bit_cast<uint32_t>(static_cast<float>(MiddleBelow(dtype_, element))) + element % 2;
  }

  DType dtype_;
  uint32_t element_ = 0, next_;
};

// Checks floats given without sign, in ascending order. `sign` is the sign bit of their elements.
void CheckFloats(DType dtype, uint32_t sign, std::vector<uint32_t> in, Rounded& rounded) {
  std::vector<uint16_t> expected(in.size()), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    expected[i] = static_cast<uint16_t>(sign | rounded(in[i]));
    in[i] |= sign << 16;
  }
  const bool has_nans = (in.back() & 0x7fffffff) > 0x7f800000;
  OnEveryTarget([&] {
    Convert(DType::kFP32, dtype, in.data(), out.data(), in.size());
    // Any payload is accepted, but the sign must stay.
    for (size_t i = 0; has_nans && i < out.size(); ++i) {
      if ((out[i] & 0x7fff) > InfinityOf(dtype)) out[i] = (out[i] & 0x8000) | Rounded::QuietNan(dtype);
    }
    ASSERT_TRUE(out == expected) << Name(dtype) << " from " << in.front() << " on";
  });
}

// Floats of one exponent: every 257th, and those around the rounding steps at its ends.
std::vector<uint32_t> SampleOf(uint32_t exponent) {
  constexpr uint32_t kFloats = 1 << 23;
  std::vector<uint32_t> sample;
  for (uint32_t n = exponent % 257; n < kFloats; n += 257) sample.push_back(n);
  for (const uint32_t step : {1u << 13, 1u << 16}) {  // from one FP16 or BF16 element to the next
    for (const uint32_t at : {0u, step / 2, step, step + step / 2, kFloats - step, kFloats - step / 2, kFloats}) {
      for (const uint32_t n : {at - 1, at, at + 1}) {
        if (n < kFloats) sample.push_back(n);
      }
    }
  }
  std::sort(sample.begin(), sample.end());
  for (uint32_t& n : sample) n += exponent * kFloats;
  return sample;
}

// Tests all 2^32 floats, or a sample of every exponent in an emulator and under a sanitizer, where all take minutes.
TEST(ConvertTest, NarrowsEveryFloatOnEveryTarget) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool all = false;
#else
  const bool all = OneIn() == 1;
#endif
  constexpr uint32_t kChunk = 1 << 15;
  for (const DType dtype : kHalves) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      Rounded rounded(dtype);
      for (uint32_t exponent = 0; !all && exponent < 256; ++exponent) {
        CheckFloats(dtype, sign, SampleOf(exponent), rounded);
      }
      std::vector<uint32_t> chunk(kChunk);
      for (uint32_t begin = 0; all && begin < 0x80000000; begin += kChunk) {
        std::iota(chunk.begin(), chunk.end(), begin);
        CheckFloats(dtype, sign, chunk, rounded);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Appends random bits, with every exponent in turn.
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
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = reference::Decode(from, reinterpret_cast<const std::byte*>(&values[i]));
      if (!std::isnan(value)) continue;
      ASSERT_EQ(std::signbit(reference::Decode(to, out.data() + i * SizeOf(to))), std::signbit(value)) << i;
    }
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
  // The middle between the largest float and 2^128, half the smallest subnormal, and the neighbours of both.
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

// Lengths that are no multiple of a vector, at any address. Nothing beyond either end is written.
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
