// The CUDA kernels' element code, compiled for the CPU, against the CPU kernels: formats, and pairs rotated one after
// the other as in a CUDA kernel.
#include <bit>
#include <cmath>

#include "cuda/elements/formats.h"
#include "cuda/elements/pairing.h"
#include "cuda/elements/rotate.h"
#include "posenc/kernels/rotate_pairs.h"
#include "tests/kernels/elements.h"

namespace posenc::cuda_elements_test {
namespace {

static_assert(static_cast<int>(DType::kBF16) == POSENC_BF16 && static_cast<int>(DType::kFP64) == POSENC_FP64);
static_assert(static_cast<int>(Rounding::kEachOperation) == POSENC_ROUND_EACH_OPERATION);
static_assert(static_cast<int>(Pairing::kHalfSplit) == POSENC_HALF_SPLIT);

constexpr uint64_t kSeed = 20250611;

template <class Check>
void OnEveryFormat(const Check& check) {
  check(DType::kFP32, Float32());
  check(DType::kFP16, Float16());
  check(DType::kBF16, BFloat16());
}

template <class T>
Block BlockOf(const std::vector<T>& values) {
  Block block(values.size() * sizeof(T));
  std::memcpy(block.data(), values.data(), block.size());
  return block;
}

// Compares Convert's results with `encode`.
template <class T, class Format, class EncodeOne>
void ExpectConverted(DType from, DType to, Format, const std::vector<T>& values, const EncodeOne& encode) {
  SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
  Block expected(values.size() * SizeOf(to));
  Convert(from, to, values.data(), expected.data(), values.size());
  std::vector<typename Format::Bits> bits;
  for (const T value : values) bits.push_back(encode(value));
  Block actual = BlockOf(bits);
  MakeNansEqual(to, expected.data(), values.size());
  MakeNansEqual(to, actual.data(), values.size());
  ExpectSameBytes(expected, actual);
}

TEST(CudaElementsTest, DecodesEveryElement) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  ExpectConverted(DType::kFP16, DType::kFP32, Float32(), all,
                  [](uint16_t bits) { return std::bit_cast<uint32_t>(cuda::Decode(Float16(), bits)); });
  ExpectConverted(DType::kBF16, DType::kFP32, Float32(), all,
                  [](uint16_t bits) { return std::bit_cast<uint32_t>(cuda::Decode(BFloat16(), bits)); });
}

// Every sign and exponent with the leading bits of either format, the rounding boundaries of both formats, and the
// neighbours of all these; then random bits.
TEST(CudaElementsTest, EncodesFloats) {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 1u << 16; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  for (uint32_t upper = 0; upper < 1u << 19; ++upper) {
    for (const uint32_t lower : {0x0001u, 0x0fffu, 0x1000u, 0x1001u}) {
      values.push_back(std::bit_cast<float>(upper << 13 | lower));
    }
  }
  std::mt19937_64 random(PrintedSeed(kSeed));
  for (int i = 0; i < 1 << 20; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  OnEveryFormat([&](DType dtype, auto format) {
    if (dtype == DType::kFP32) return;
    ExpectConverted(DType::kFP32, dtype, format, values, [format](float v) { return cuda::Encode(format, v); });
    ExpectConverted(DType::kFP32, dtype, format, values,
                    [format](float v) { return cuda::Encode(format, cuda::RoundTo(format, v)); });
    if constexpr (sizeof(typename decltype(format)::Bits) == 2) {
      for (size_t i = 1; i < values.size(); ++i) {
        const uint32_t pair = cuda::EncodePair(format, values[i - 1], values[i]);
        ASSERT_EQ(pair, uint32_t{cuda::Encode(format, values[i])} << 16 | cuda::Encode(format, values[i - 1]));
      }
    }
  });
}

// Values and boundaries of the format, of every exponent, with the neighbouring doubles; then random bits.
TEST(CudaElementsTest, EncodesDoublesInOneStep) {
  std::mt19937_64 random(PrintedSeed(kSeed + 1));
  OnEveryFormat([&](DType dtype, auto format) {
    using Bits = typename decltype(format)::Bits;
    std::vector<double> values;
    for (uint64_t i = 0; i < 1u << 18; ++i) {
      const auto bits = static_cast<Bits>(sizeof(Bits) == 2 ? i : random());
      const double low = cuda::Decode(format, bits), high = cuda::Decode(format, static_cast<Bits>(bits + 1));
      const double middle = low / 2 + high / 2;
      for (const double value : {low, middle}) {
        for (const double toward : {-HUGE_VAL, value, HUGE_VAL}) values.push_back(std::nextafter(value, toward));
      }
    }
    for (int i = 0; i < 1 << 19; ++i) values.push_back(std::bit_cast<double>(static_cast<uint64_t>(random())));
    for (int exponent = -1074; exponent < 1024; ++exponent) values.push_back(std::ldexp(-1.0, exponent));
    ExpectConverted(DType::kFP64, dtype, format, values, [format](double v) { return cuda::Encode(format, v); });
    ExpectConverted(DType::kFP64, dtype, format, values, [dtype, format](double v) {
      return cuda::Encode(format, cuda::RoundTo(static_cast<posenc_dtype>(dtype), v));
    });
  });
}

template <class Format, class Real>
void RotateRow(Format format, const PairRotation& work, size_t token, const std::byte* x, std::byte* y) {
  using Bits = typename Format::Bits;
  std::vector<Bits> row(work.head_dim);
  std::memcpy(row.data(), x, work.head_dim * sizeof(Bits));
  const std::vector<Bits> in = row;
  const auto* cos = static_cast<const Real*>(work.cos) + token * work.pairs;
  const auto* sin = static_cast<const Real*>(work.sin) + token * work.pairs;
  const size_t half = work.pairs / work.half_split_parts;
  for (size_t pair = 0; pair < work.pairs; ++pair) {
    const auto from = cuda::PlaceOf(static_cast<posenc_pairing>(work.input_pairing), half, pair);
    const auto to = cuda::PlaceOf(static_cast<posenc_pairing>(work.output_pairing), half, pair);
    const cuda::ElementPair<Format> elements = {in[work.rotary_offset + from.first],
                                                in[work.rotary_offset + from.second]};
    const auto turned =
        cuda::Rotated(format, static_cast<posenc_rounding>(work.rounding), elements, cos[pair], sin[pair]);
    row[work.rotary_offset + to.first] = turned.first;
    row[work.rotary_offset + to.second] = turned.second;
  }
  std::memcpy(y, row.data(), row.size() * sizeof(Bits));
}

// Rotates random tokens by random tables with the CPU kernel and with RotateRow, and compares the bytes.
template <class Format, class Real>
void ExpectSameRotation(Format format, PairRotation work, std::mt19937_64& random) {
  constexpr size_t kTokens = 3;
  const size_t element = SizeOf(work.dtype);
  work.table_dtype = sizeof(Real) == 8 ? DType::kFP64 : DType::kFP32;
  work.rotary_offset = random() % 3;
  work.head_dim = work.rotary_offset + 2 * work.pairs + random() % 3;
  work.tokens = kTokens;
  work.heads = 2;
  work.head_stride = work.head_dim * element;
  work.token_stride = work.heads * work.head_stride;
  Block cos(kTokens * work.pairs * sizeof(Real)), sin(cos.size()), x(kTokens * work.token_stride);
  for (Block* const table : {&cos, &sin}) {
    FillWithElements(work.table_dtype, random, table->data(), kTokens * work.pairs);
    MakeNansEqual(work.table_dtype, table->data(), kTokens * work.pairs);
  }
  FillWithElements(work.dtype, random, x.data(), x.size() / element);
  MakeNansEqual(work.dtype, x.data(), x.size() / element);
  work.cos = cos.data();
  work.sin = sin.data();
  work.x = x.data();
  Block expected(x.size()), actual(x.size());
  work.y = expected.data();
  RotatePairs(work, 0, kTokens);
  for (size_t row = 0; row < kTokens * work.heads; ++row) {
    const size_t start = row * work.head_stride;
    RotateRow<Format, Real>(format, work, row / work.heads, x.data() + start, actual.data() + start);
  }
  MakeNansEqual(work.dtype, expected.data(), expected.size() / element);
  MakeNansEqual(work.dtype, actual.data(), actual.size() / element);
  ExpectSameBytes(expected, actual);
}

TEST(CudaElementsTest, TurnsPairs) {
  std::mt19937_64 random(PrintedSeed(kSeed + 2));
  constexpr Pairing kPairings[] = {Pairing::kInterleaved, Pairing::kHalfSplit};
  OnEveryFormat([&](DType dtype, auto format) {
    for (const Rounding rounding : {Rounding::kOnce, Rounding::kEachOperation}) {
      for (const Pairing input : kPairings) {
        for (const Pairing output : kPairings) {
          for (const size_t parts : {1, 2, 3}) {
            for (const size_t half : {1, 2, 5, 8, 33, 64}) {
              PairRotation work{};
              work.dtype = dtype;
              work.rounding = rounding;
              work.input_pairing = input;
              work.output_pairing = output;
              work.half_split_parts = parts;
              work.pairs = parts * half;
              SCOPED_TRACE(std::string(Name(dtype)) + " pairs " + std::to_string(work.pairs) + " parts " +
                           std::to_string(parts) + (rounding == Rounding::kOnce ? " once " : " each operation ") +
                           std::to_string(static_cast<int>(input)) + std::to_string(static_cast<int>(output)));
              using Format = decltype(format);
              ExpectSameRotation<Format, float>(format, work, random);
              ExpectSameRotation<Format, double>(format, work, random);
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace posenc::cuda_elements_test
