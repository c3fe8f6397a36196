// The bytes that every primitive writes, on every CPU target of this machine, against digests that are the same for all
// machines (tests/digests/README.md, which says how to write them anew too).
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/kernels/target.h"
#include "posenc/rotary_plan.h"
#include "tests/unit/digest_inputs.h"
#include "tests/unit/elements.h"

namespace posenc {
namespace {

constexpr DType kTypes[] = {DType::kFP64, DType::kFP32, DType::kFP16, DType::kBF16};
constexpr DType kTensorTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};
constexpr Frequencies kArithmetics[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};
constexpr Rounding kRoundings[] = {Rounding::kOnce, Rounding::kEachOperation};
constexpr Pairing kPairings[] = {Pairing::kInterleaved, Pairing::kHalfSplit};

const char* Name(Frequencies f) {
  return f == Frequencies::kExact ? "exact" : f == Frequencies::kFloat64 ? "float64" : "float32";
}
const char* Name(Rounding r) { return r == Rounding::kOnce ? "once" : "each"; }
const char* Name(Pairing p) { return p == Pairing::kInterleaved ? "interleaved" : "half-split"; }

// What a case is, in words that say all about it, and the bytes that it makes.
struct Case {
  std::string name;
  std::function<Block()> run;
};

// The n-th of choices that take turns.
template <class T, size_t N>
T Turn(size_t n, const T (&choices)[N]) {
  return choices[n % N];
}

// convert

std::vector<Case> ConvertCases() {
  std::vector<Case> cases;
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const size_t count : {1, 2, 3, 5, 8, 13, 21, 34, 55, 67, 129, 300, 4096}) {
        if (from == to) continue;
        const auto run = [=] {
          Block in(count * SizeOf(from), 1), out(count * SizeOf(to), 1);
          FillWithElements(from, count, 0, count, in.data());
          Convert(from, to, in.data(), out.data(), count);
          MakeNansEqual(to, out.data(), count);
          return out;
        };
        cases.push_back({fmt::format("from={} to={} count={}", Name(from), Name(to), count), run});
      }
    }
  }
  return cases;
}

// sincos_rows

struct SinCosCase {
  Frequencies frequencies;
  DType dtype;
  std::string positions;
  size_t rows;
  size_t pairs;
  double scale;
  bool divide;
};

int SignificantBits(DType dtype) {
  return dtype == DType::kFP64 ? 53 : dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
}

double Position(const SinCosCase& c, size_t row) {
  static constexpr double kExtremes[] = {0.0,   -0.0, 1e300, -1e300, 5e-324, 1.7976931348623157e308,
                                         -1e-6, 1e15, 1e20,  -1e-300};
  const uint64_t random = Random(1, row);
  if (c.positions == "count") return static_cast<double>(row);
  if (c.positions == "31-bits") return static_cast<double>(random >> 33);
  if (c.positions == "53-bits") return static_cast<double>(random >> 11);
  // Odd, and one bit too long for the type: with a power of two the angle is the middle between two of its values.
  if (c.positions == "middles") return std::ldexp(1, std::min(SignificantBits(c.dtype), 52)) + 1 + 2.0 * row;
  if (c.positions == "extremes") return kExtremes[row];
  // From 2^-40 to 2^46, of both signs.
  return std::bit_cast<double>(random % 2 << 63 | (1023 - 40 + random / 2 % 86) << 52 | random >> 12);
}

double InvFreq(const SinCosCase& c, size_t pair) {
  static constexpr double kExtremes[] = {1.0, 0.0, 0x1p-149, 0.5, 0x1p-20, 0x1p100, 5e-324, 1e-310, 1e300};
  if (c.positions == "middles") return std::ldexp(1, -static_cast<int>(pair) - 8);
  if (c.positions == "extremes") return kExtremes[pair];
  // 2^-1 and below, of any mantissa that the type of the frequencies has.
  const uint64_t mantissa = Random(2, pair) >> 12;
  const uint64_t kept = c.frequencies == Frequencies::kFloat32 ? mantissa >> 29 << 29 : mantissa;
  return std::bit_cast<double>((1022 - pair % 40) << 52 | kept);
}

Block RunSinCos(const SinCosCase& c) {
  std::vector<double> positions(c.rows), inv_freq(c.pairs);
  for (size_t row = 0; row < c.rows; ++row) positions[row] = Position(c, row);
  for (size_t pair = 0; pair < c.pairs; ++pair) inv_freq[pair] = InvFreq(c, pair);
  const size_t entries = c.rows * c.pairs;
  Block out(2 * entries * SizeOf(c.dtype));
  const SinCosRows work = {.frequencies = c.frequencies,
                           .dtype = c.dtype,
                           .positions = positions.data(),
                           .inv_freq = inv_freq.data(),
                           .rows = c.rows,
                           .pairs = c.pairs,
                           .scale = c.scale,
                           .divide = c.divide,
                           .cos = out.data(),
                           .sin = out.data() + entries * SizeOf(c.dtype)};
  Run(work, 0, c.rows);
  MakeNansEqual(c.dtype, out.data(), 2 * entries);
  return out;
}

std::vector<Case> SinCosCases() {
  std::vector<Case> cases;
  for (const char* positions : {"count", "31-bits", "53-bits", "reals", "middles", "extremes"}) {
    for (const Frequencies frequencies : kArithmetics) {
      for (const DType dtype : kTypes) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          const size_t n = cases.size();
          SinCosCase c = {.frequencies = frequencies, .dtype = dtype, .positions = positions};
          c.rows = 3;
          c.pairs = Turn<size_t>(n, {1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 40});
          if (c.positions == "extremes") {
            if (repeat > 0) continue;
            c.rows = 10;
            c.pairs = frequencies == Frequencies::kFloat32 ? 6 : 9;  // the first six are of that type
          } else if (n % 24 == 0) {
            c.rows = 1;
            c.pairs = 300;
          }
          c.scale = Turn<double>(n, {1, 1.1386294361119891, 1, -3.75, 0.1, 3e38, 1e-40});
          c.divide = n % 5 == 4;
          cases.push_back({fmt::format("frequencies={} dtype={} positions={} rows={} pairs={} scale={} divide={:d}",
                                       Name(frequencies), Name(dtype), positions, c.rows, c.pairs, c.scale, c.divide),
                           [c] { return RunSinCos(c); }});
        }
      }
    }
  }
  return cases;
}

// rotate_pairs

struct RotateCase {
  DType dtype;
  DType table;
  Rounding rounding;
  Pairing input;
  Pairing output;
  bool in_place;
  size_t pairs;
  size_t heads;
  size_t before;  // elements of a head row before the rotated ones
  size_t after;   // and after them
  size_t gap;     // bytes between head rows
  bool heads_outermost;
};

// Rotates tokens 1 and 2 of three. The bytes are all of y's memory, that of token 0 and the gaps included.
Block RunRotate(const RotateCase& c) {
  constexpr size_t kTokens = 3;
  const size_t head_dim = c.before + 2 * c.pairs + c.after;
  const size_t step = head_dim * SizeOf(c.dtype) + c.gap;
  const size_t head_rows = kTokens * c.heads;
  Block cos(kTokens * c.pairs * SizeOf(c.table), 1), sin = cos, x(head_rows * step, 1);
  FillWithElements(c.table, 1, 0, kTokens * c.pairs, cos.data());
  FillWithElements(c.table, 2, 0, kTokens * c.pairs, sin.data());
  std::memset(x.data(), 0x5a, x.size());
  for (size_t row = 0; row < head_rows; ++row) {
    FillWithElements(c.dtype, 3, row * head_dim, head_dim, x.data() + row * step);
  }
  Block y = x;
  if (!c.in_place) std::memset(y.data(), 0xa5, y.size());
  const RotatePairs work = {.dtype = c.dtype,
                            .head_dim = head_dim,
                            .rotary_offset = c.before,
                            .pairs = c.pairs,
                            .input_pairing = c.input,
                            .output_pairing = c.output,
                            .rounding = c.rounding,
                            .table_dtype = c.table,
                            .cos = cos.data(),
                            .sin = sin.data(),
                            .x = c.in_place ? y.data() : x.data(),
                            .y = y.data(),
                            .tokens = kTokens,
                            .heads = c.heads,
                            .token_stride = c.heads_outermost ? step : c.heads * step,
                            .head_stride = c.heads_outermost ? kTokens * step : step};
  Run(work, 1, kTokens);
  for (size_t token = 1; token < kTokens; ++token) {
    for (size_t head = 0; head < c.heads; ++head) {
      const size_t start = token * work.token_stride + head * work.head_stride + c.before * SizeOf(c.dtype);
      MakeNansEqual(c.dtype, y.data() + start, 2 * c.pairs);
    }
  }
  return y;
}

std::vector<Case> RotateCases() {
  std::vector<Case> cases;
  for (const DType dtype : kTensorTypes) {
    for (const DType table : {DType::kFP32, DType::kFP64}) {
      for (const Rounding rounding : kRoundings) {
        for (const Pairing input : kPairings) {
          for (const Pairing output : kPairings) {
            for (const bool in_place : {false, true}) {
              for (int repeat = 0; repeat < 4; ++repeat) {
                const size_t n = cases.size();
                const RotateCase c = {
                    .dtype = dtype,
                    .table = table,
                    .rounding = rounding,
                    .input = input,
                    .output = output,
                    .in_place = in_place,
                    .pairs = Turn<size_t>(n, {1, 2, 3, 4, 6, 7, 13, 16, 31, 32, 33, 65, 71, 128, 150}),
                    .heads = Turn<size_t>(n, {1, 3}),
                    .before = Turn<size_t>(n, {0, 0, 1, 4}),
                    .after = Turn<size_t>(n, {0, 5, 0, 2, 0}),
                    .gap = Turn<size_t>(n, {0, 7, 64}),
                    .heads_outermost = n / 2 % 2 == 1};
                cases.push_back({fmt::format("dtype={} table={} rounding={} input={} output={} in_place={:d} pairs={} "
                                             "heads={} before={} after={} gap={} heads_outermost={:d}",
                                             Name(dtype), Name(table), Name(rounding), Name(input), Name(output),
                                             in_place, c.pairs, c.heads, c.before, c.after, c.gap, c.heads_outermost),
                                 [c] { return RunRotate(c); }});
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

// distance_bias

struct BiasCase {
  DType dtype;
  Rounding rounding;
  bool scores;
  DType bias_dtype;
  size_t queries;
  size_t keys;
  double step;    // from one position to the next
  double offset;  // of query 0, in steps
  float past;
  float future;
  std::string mask;  // "none", "in-order" or "shuffled" positions of keys
  bool causal;
  double left;
  double right;
  uint64_t valid;  // of four keys; 5: not given
  float fill;
  bool zero_rows;
};

Block RunBias(const BiasCase& c) {
  std::vector<double> queries(c.queries), keys(c.keys), mask_queries(c.queries), mask_keys(c.keys);
  std::vector<uint8_t> key_valid(c.keys);
  for (size_t i = 0; i < c.queries; ++i) {
    mask_queries[i] = c.offset + static_cast<double>(i);
    queries[i] = c.step * mask_queries[i];
  }
  for (size_t j = 0; j < c.keys; ++j) {
    keys[j] = c.step * static_cast<double>(j);
    mask_keys[j] = static_cast<double>(c.mask == "shuffled" ? Random(1, j) % 100 : j);
    key_valid[j] = Random(2, j) % 4 < c.valid ? static_cast<uint8_t>(1 + Random(3, j) % 255) : 0;
  }
  const size_t cells = c.queries * c.keys;
  Block scores(cells * SizeOf(c.dtype), 1), out(cells * SizeOf(c.dtype), 1);
  FillWithElements(c.dtype, 4, 0, cells, scores.data());
  DistanceBias work = {.dtype = c.dtype,
                       .rounding = c.rounding,
                       .queries = c.queries,
                       .keys = c.keys,
                       .query_positions = queries.data(),
                       .key_positions = keys.data(),
                       .past_slope = c.past,
                       .future_slope = c.future,
                       .bias_dtype = c.bias_dtype};
  if (c.mask != "none") {
    work.mask_query_positions = mask_queries.data();
    work.mask_key_positions = mask_keys.data();
    work.causal = c.causal;
    work.window_left = c.left;
    work.window_right = c.right;
  }
  if (c.valid <= 4) work.key_valid = key_valid.data();
  work.fill = c.fill;
  work.zero_fully_masked_rows = c.zero_rows;
  if (c.scores) work.scores = scores.data();
  work.out = out.data();
  Run(work, 0, c.queries);
  MakeNansEqual(c.dtype, out.data(), cells);
  return out;
}

std::vector<Case> BiasCases() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kWindows[] = {kUnlimited, 5, kUnlimited, 0, 1, 0.5, 30};
  std::vector<Case> cases;
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const bool scores : {false, true}) {
        for (const DType bias_dtype : kTensorTypes) {
          for (const char* mask : {"none", "in-order", "shuffled"}) {
            for (int repeat = 0; repeat < 3; ++repeat) {
              const size_t n = cases.size();
              const BiasCase c = {
                  .dtype = dtype,
                  .rounding = rounding,
                  .scores = scores,
                  .bias_dtype = bias_dtype,
                  .queries = Turn<size_t>(n, {1, 4, 7}),
                  .keys = Turn<size_t>(n, {1, 2, 3, 5, 8, 13, 31, 33, 64, 67, 80}),
                  .step = Turn<double>(n, {1, 1, 0.25, 1e9, 1000}),
                  .offset = Turn<double>(n, {0, 20, -5, 3, 60}),
                  .past = Turn(n, {0.5f, 0.00390625f, 0.70710677f, -0.5f, 1e-42f, -0.0f, 3e38f, -1e-30f}),
                  .future = Turn(n, {-0.5f, 0.0f, -0.70710677f, 0.25f, -1e-42f, 3e-5f}),
                  .mask = mask,
                  .causal = n % 4 == 1,
                  .left = Turn(n, kWindows),
                  .right = Turn(n / 2, kWindows),
                  .valid = Turn<uint64_t>(n / 3, {5, 3, 5, 0, 1}),
                  .fill = Turn(n, {-kInfinity, 0.0f, -10000.0f, std::numeric_limits<float>::lowest(), 1.00001f}),
                  .zero_rows = n % 2 == 0};
              cases.push_back(
                  {fmt::format("dtype={} rounding={} scores={:d} bias_dtype={} queries={} keys={} step={} offset={} "
                               "past={} future={} mask={} causal={:d} left={} right={} valid={} fill={} zero_rows={:d}",
                               Name(dtype), Name(rounding), scores, Name(bias_dtype), c.queries, c.keys, c.step,
                               c.offset, c.past, c.future, mask, c.causal, c.left, c.right, c.valid, c.fill,
                               c.zero_rows),
                   [c] { return RunBias(c); }});
            }
          }
        }
      }
    }
  }
  return cases;
}

// plans: frequencies, which no vector code computes but which could depend on a C library.

Block RunPlan(const RopeParameters& parameters, int64_t rotary_dim, Frequencies arithmetic, int64_t seq_len) {
  RotarySettings settings;
  settings.frequencies = parameters;
  settings.rotary_dim = rotary_dim;
  if (parameters.rope_type == "dynamic") settings.max_position_embeddings = 4096;
  settings.input_pairing = Pairing::kHalfSplit;
  const auto rotary = Rotary::Create(settings, arithmetic, {});
  EXPECT_TRUE(rotary.ok()) << rotary.status();
  if (!rotary.ok()) return Block(0);
  const auto plan = rotary->Plan(seq_len);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return Block(0);
  std::vector<double> numbers = plan->inv_freq;
  numbers.push_back(plan->attention_scaling);
  Block bytes(numbers.size() * sizeof(double));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<Case> PlanCases() {
  std::vector<Case> cases;
  for (const Frequencies arithmetic : kArithmetics) {
    for (const int64_t dim : {4, 64, 96, 128}) {
      for (const double theta : {10000.0, 500000.0, 150000.0}) {
        for (const char* type : {"default", "linear", "dynamic", "yarn", "longrope", "llama3", "ntk_alpha"}) {
          constexpr int64_t kSeqLen = 10000;
          RopeParameters p = {.rope_type = type, .rope_theta = theta};
          if (p.rope_type != "default" && p.rope_type != "ntk_alpha") p.factor = 5;
          if (p.rope_type == "yarn" || p.rope_type == "longrope" || p.rope_type == "llama3") {
            p.original_max_position_embeddings = 4096;
          }
          if (p.rope_type == "llama3") {
            p.low_freq_factor = 1;
            p.high_freq_factor = 4;
          }
          if (p.rope_type == "longrope") {
            for (int64_t i = 0; i < dim / 2; ++i) p.short_factor.push_back(1 + static_cast<double>(i) / 64);
            for (int64_t i = 0; i < dim / 2; ++i) p.long_factor.push_back(1 + static_cast<double>(i) / 3);
          }
          if (p.rope_type == "ntk_alpha") p.alpha = 1000;
          cases.push_back(
              {fmt::format("rope_type={} frequencies={} rotary_dim={} theta={}", type, Name(arithmetic), dim, theta),
               [=] { return RunPlan(p, dim, arithmetic, kSeqLen); }});
        }
      }
    }
  }
  return cases;
}

// One line a case: what it is, and the digest of its bytes.
std::vector<std::string> Lines(const std::vector<Case>& cases) {
  std::vector<std::string> lines;
  for (const Case& c : cases) {
    const Block bytes = c.run();
    lines.push_back(fmt::format("{} {:016x}", c.name, XXH3_64bits(bytes.data(), bytes.size())));
  }
  return lines;
}

// Compares the lines with the file's; writes them there first if that is asked for.
void Check(const std::string& file, const std::vector<Case>& cases) {
  const std::string path = fmt::format("{}/digests/{}.txt", POSENC_TEST_DATA, file);
  const std::vector<std::string> lines = Lines(cases);
  if (std::getenv("POSENC_WRITE_DIGESTS") != nullptr && CpuTarget() == SupportedCpuTargets().front()) {
    std::ofstream out(path);
    for (const std::string& line : lines) out << line << '\n';
  }
  std::ifstream in(path);
  std::string expected;
  for (const std::string& line : lines) {
    ASSERT_TRUE(std::getline(in, expected)) << path << " ends before " << line;
    EXPECT_EQ(line, expected);
  }
  EXPECT_FALSE(std::getline(in, expected)) << path << " has more: " << expected;
}

class DigestTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceCpuTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(ForceCpuTarget(SupportedCpuTargets().front()).ok()); }
};

TEST_P(DigestTest, Convert) { Check("convert", ConvertCases()); }
TEST_P(DigestTest, SinCosRows) { Check("sincos_rows", SinCosCases()); }
TEST_P(DigestTest, RotatePairs) { Check("rotate_pairs", RotateCases()); }
TEST_P(DigestTest, DistanceBias) { Check("distance_bias", BiasCases()); }

INSTANTIATE_TEST_SUITE_P(EveryTarget, DigestTest, testing::ValuesIn(SupportedCpuTargets()),
                         [](const auto& target) { return target.param; });

TEST(Digest, Plans) { Check("plans", PlanCases()); }

}  // namespace
}  // namespace posenc
