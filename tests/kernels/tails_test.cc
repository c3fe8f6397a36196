// The ends of arrays: every kernel at every small size, in memory that ends with the array. Valgrind detects accesses
// beyond it (tests/CMakeLists.txt), AddressSanitizer also on targets that valgrind lacks. Values are only compared
// between targets.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/kernels/dot_products.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/sigmoid.h"
#include "posenc/kernels/sincos_rows.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"

namespace posenc {
namespace {

// More than two of the widest vectors in the narrowest lanes that a kernel computes in: 16 floats.
constexpr size_t kSizes = 35;
constexpr DType kFloats[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};
constexpr DType kTensors[] = {DType::kFP32, DType::kFP16, DType::kBF16};

// Arbitrary values. The misalignment varies from block to block, except for streaming stores.
Block Filled(DType dtype, size_t count, bool aligned = false) {
  static std::mt19937_64 random(1);
  Block block(count * SizeOf(dtype), aligned ? 0 : random() % 4);
  for (size_t i = 0; i < count; ++i) {
    reference::Encode(dtype, static_cast<double>(random() % 4096) / 256 - 8, block.data() + i * SizeOf(dtype));
  }
  return block;
}

// An array of doubles, which kernels expect to be aligned.
std::vector<double> Doubles(size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.75 * static_cast<double>(i);
  return values;
}

// run() computes again and returns the result.
template <class Run>
void ExpectTheSameOnEveryTarget(const Run& run) {
  std::optional<Block> expected;
  OnEveryTarget([&] {
    Block result = run();
    if (expected) ExpectSameBytes(*expected, result);
    expected = std::move(result);
  });
}

TEST(Tails, OfConversions) {
  for (size_t count = 0; count <= 2 * kSizes; ++count) {
    for (const DType from : kFloats) {
      const Block source = Filled(from, count);
      for (const DType to : kFloats) {
        ExpectTheSameOnEveryTarget([&] {
          Block result(count * SizeOf(to), count % 3);
          Convert(from, to, source.data(), result.data(), count);
          return result;
        });
      }
    }
  }
}

TEST(Tails, OfRotations) {
  for (size_t pairs = 1; pairs <= kSizes; ++pairs) {
    for (const DType dtype : kTensors) {
      for (const DType table : {DType::kFP32, DType::kFP64}) {
        const Block cos = Filled(table, 2 * pairs), sin = Filled(table, 2 * pairs);
        // Many heads and streaming stores have loops of their own if the table is float32.
        for (unsigned choice = 0; choice < (table == DType::kFP32 ? 128 : 32); ++choice) {
          PairRotation work = {};
          work.dtype = dtype;
          work.heads = choice & 32 ? 4 : 1;
          work.large = choice & 64;
          work.rotary_offset = !(choice & 1) ? 0 : work.large ? 32 : 1;
          work.head_dim = work.rotary_offset + 2 * pairs;
          work.pairs = pairs;
          work.input_pairing = choice & 2 ? Pairing::kInterleaved : Pairing::kHalfSplit;
          work.output_pairing = choice & 4 ? Pairing::kInterleaved : Pairing::kHalfSplit;
          work.rounding = choice & 8 ? Rounding::kOnce : Rounding::kEachOperation;
          work.table_dtype = table;
          work.cos = cos.data();
          work.sin = sin.data();
          work.tokens = 2;
          work.head_stride = work.head_dim * SizeOf(dtype);
          work.token_stride = work.heads * work.head_stride;
          const Block x = Filled(dtype, 2 * work.heads * work.head_dim, work.large);
          ExpectTheSameOnEveryTarget([&] {
            Block y = choice & 16 ? x : Block(x.size(), work.large ? 0 : choice % 3);
            work.x = choice & 16 ? y.data() : x.data();
            work.y = y.data();
            RotatePairs(work, 0, 2);
            return y;
          });
        }
      }
    }
  }
}

enum class Source { kLinear, kRows, kShifted, kGathered, kNone };

TEST(Tails, OfBiases) {
  for (size_t keys = 1; keys <= kSizes; ++keys) {
    const std::vector<double> query_positions = Doubles(2), key_positions = Doubles(keys);
    const std::vector<float> rows(2 * keys, 0.5f), list(keys + 1, 0.25f);
    const double whole_queries[] = {0, 1};
    std::vector<double> whole_keys(keys);
    std::iota(whole_keys.begin(), whole_keys.end(), 0);
    std::vector<uint8_t> valid(keys, 1);
    valid[keys / 2] = 0;
    for (const DType dtype : kTensors) {
      for (const Source source : {Source::kLinear, Source::kRows, Source::kShifted, Source::kGathered, Source::kNone}) {
        for (unsigned choice = 0; choice < (source == Source::kLinear ? 16 : 32); ++choice) {
          DistanceBias work = {};
          work.dtype = dtype;
          work.rounding = choice & 1 ? Rounding::kOnce : Rounding::kEachOperation;
          work.queries = 2;
          work.keys = keys;
          work.large = choice & 16;
          if (source == Source::kLinear) {
            work.bias = LinearBias{.query_positions = query_positions.data(),
                                   .key_positions = key_positions.data(),
                                   .past_slope = 0.5f,
                                   .future_slope = -0.25f,
                                   .bias_dtype = choice & 1 ? DType::kBF16 : DType::kFP32};
          } else if (source == Source::kRows) {
            work.bias = GivenBias{rows.data(), static_cast<ptrdiff_t>(keys)};
          } else if (source == Source::kShifted) {
            work.bias = GivenBias{list.data() + 1, -1};
          } else if (source == Source::kGathered) {
            work.bias = GatheredBias{.values = list.data(),
                                     .value_count = list.size(),
                                     .first = -1,
                                     .query_positions = whole_queries,
                                     .key_positions = whole_keys.data()};
          }
          if (choice & 2) {
            work.mask_query_positions = query_positions.data();
            work.mask_key_positions = key_positions.data();
            work.window_right = 9;
            work.key_valid = valid.data();
          }
          const Block scores = Filled(dtype, 2 * keys, work.large);
          ExpectTheSameOnEveryTarget([&] {
            Block out = choice & 8 ? scores : Block(scores.size(), work.large ? 0 : choice % 3);
            if (choice & 4) work.scores = choice & 8 ? out.data() : scores.data();
            work.out = out.data();
            ComputeDistanceBias(work, 0, 2);
            return out;
          });
        }
      }
    }
  }
}

TEST(Tails, OfProducts) {
  for (size_t width = 1; width <= kSizes; ++width) {
    for (const size_t depth : {0, 1, 2, 7}) {
      const std::vector<double> columns = Doubles(depth * width);
      for (size_t rows = 0; rows <= 3; ++rows) {
        const std::vector<float> x(rows * depth, 1.5f);
        ExpectTheSameOnEveryTarget([&] {
          Block out(rows * width * sizeof(double));
          ComputeDotProducts(
              DotProducts{x.data(), depth, rows, depth, columns.data(), width, reinterpret_cast<double*>(out.data())});
          return out;
        });
      }
    }
  }
}

TEST(Tails, OfSigmoids) {
  for (size_t count = 0; count <= kSizes; ++count) {
    ExpectTheSameOnEveryTarget([&] {
      std::vector<double> values = Doubles(count);
      Sigmoid(values.data(), count);
      Block out(count * sizeof(double));
      std::copy_n(reinterpret_cast<const std::byte*>(values.data()), out.size(), out.data());  // none is legal too
      return out;
    });
  }
}

TEST(Tails, OfTables) {
  for (const size_t rows : {2, 33}) {  // 33 rows form a run
    for (size_t pairs = 1; pairs <= kSizes; ++pairs) {
      const std::vector<double> positions = Doubles(rows);
      std::vector<double> inv_freq = Doubles(pairs);
      inv_freq[0] = 3;  // not 0: 0 - 1 * 0 decides a sign, which valgrind's fused operation gets wrong
      for (const DType dtype : kFloats) {
        for (const Frequencies frequencies : {Frequencies::kExact, Frequencies::kFloat32, Frequencies::kFloat64}) {
          if (rows > 2 && frequencies != Frequencies::kExact) continue;
          for (const double scale : {1.0, 1.25}) {
            for (const bool sine : {false, true}) {
              ExpectTheSameOnEveryTarget([&] {
                Block cos(rows * pairs * SizeOf(dtype)), sin(cos.size());
                const SinCosRows work = {.frequencies = frequencies,
                                         .dtype = dtype,
                                         .positions = positions.data(),
                                         .inv_freq = inv_freq.data(),
                                         .rows = rows,
                                         .pairs = pairs,
                                         .scale = scale,
                                         .cos = cos.data(),
                                         .sin = sin.data()};
                ComputeSinCosRows(work, 0, rows);
                return sine ? sin : cos;
              });
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace posenc
