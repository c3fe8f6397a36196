#include "posenc/kernels/rotate_pairs.h"

#include <algorithm>
#include <string>

#include "tests/kernels/boundaries.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/scalar_rotate.h"

namespace posenc {
namespace {

// The memory layout of head rows.
struct Layout {
  size_t heads;
  size_t before;         // elements before the rotated ones
  size_t after;          // elements after them
  size_t gap;            // bytes between head rows
  size_t misalignment;   // bytes
  bool heads_outermost;  // [heads, tokens, D] instead of [tokens, heads, D]
};
constexpr Layout kLayouts[] = {
    {1, 0, 0, 0, 0, false}, {3, 2, 5, 7, 1, false},  {2, 0, 3, 0, 2, true},
    {3, 1, 0, 13, 3, true}, {4, 0, 0, 64, 0, false}, {5, 2, 1, 0, 1, true},
};

struct Case {
  DType dtype;
  DType table;
  Rounding rounding;
  Pairing input;
  Pairing output;
  bool in_place;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (DType table : {DType::kFP32, DType::kFP64}) {
      for (Rounding rounding : {Rounding::kOnce, Rounding::kEachOperation}) {
        for (Pairing input : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
          for (Pairing output : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
            for (bool in_place : {false, true}) cases.push_back({dtype, table, rounding, input, output, in_place});
          }
        }
      }
    }
  }
  return cases;
}

std::string Describe(const Case& c, size_t pairs, const Layout& layout) {
  return std::string(Name(c.dtype)) + " table " + std::string(Name(c.table)) +
         (c.rounding == Rounding::kOnce ? " once" : " each operation") +
         (c.input == Pairing::kInterleaved ? " interleaved" : " half-split") +
         (c.output == Pairing::kInterleaved ? " to interleaved" : " to half-split") + (c.in_place ? " in place" : "") +
         " pairs " + std::to_string(pairs) + " layout " + std::to_string(&layout - kLayouts);
}

// Rotates all tokens except the first on every target, and compares all of y's memory, including gaps and token 0.
void CheckCase(const Case& c, size_t pairs, const Layout& layout, std::mt19937_64& random, size_t tokens = 3,
               bool by_head = false, bool by_element = false) {
  SCOPED_TRACE(Describe(c, pairs, layout));
  const size_t element = SizeOf(c.dtype);
  PairRotation work;
  work.dtype = c.dtype;
  work.head_dim = layout.before + 2 * pairs + layout.after;
  work.rotary_offset = layout.before;
  work.pairs = pairs;
  work.input_pairing = c.input;
  work.output_pairing = c.output;
  if (pairs % 3 != 1) work.half_split_parts = pairs % 3 == 0 ? 3 : pairs % 2 == 0 ? 2 : 1;
  work.rounding = c.rounding;
  work.table_dtype = c.table;
  work.tokens = tokens;
  work.heads = layout.heads;
  const size_t row = work.head_dim * element;
  const size_t step = row + layout.gap;
  work.head_stride = layout.heads_outermost ? tokens * step : step;
  work.token_stride = layout.heads_outermost ? step : layout.heads * step;
  const size_t size = tokens * layout.heads * step - layout.gap;

  const size_t of_head = pairs * (by_element ? 2 : 1), of_token = of_head * (by_head ? layout.heads : 1);
  if (by_head || by_element) work.token_entries = of_token;
  if (by_head) work.head_entries = of_head;
  if (by_element) work.second_entry = pairs;
  Block cos(tokens * of_token * SizeOf(c.table)), sin(cos.size());
  FillWithElements(c.table, random, cos.data(), tokens * of_token);
  FillWithElements(c.table, random, sin.data(), tokens * of_token);
  MakeNansEqual(c.table, cos.data(), tokens * of_token);
  MakeNansEqual(c.table, sin.data(), tokens * of_token);
  work.large = random() % 2 == 0;
  work.cos = cos.data();
  work.sin = sin.data();
  Block x(size, layout.misalignment);
  for (size_t i = 0; i < size; ++i) x.data()[i] = static_cast<std::byte>(random());
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t h = 0; h < layout.heads; ++h) {
      FillWithElements(c.dtype, random, x.data() + t * work.token_stride + h * work.head_stride, work.head_dim);
    }
  }
  Block before(size, layout.misalignment);
  for (size_t i = 0; i < size; ++i) before.data()[i] = c.in_place ? x.data()[i] : std::byte{0xa5};

  const auto run = [&](auto rotate) {
    Block y = before;
    work.x = c.in_place ? y.data() : x.data();
    work.y = y.data();
    rotate(work, size_t{1}, tokens);
    for (size_t t = 1; t < tokens; ++t) {
      for (size_t h = 0; h < layout.heads; ++h) {
        const size_t start = t * work.token_stride + h * work.head_stride + layout.before * element;
        MakeNansEqual(c.dtype, y.data() + start, 2 * pairs);
      }
    }
    return y;
  };
  const Block expected = run(reference::ScalarRotate);
  OnEveryTarget([&] {
    ExpectSameBytes(expected, run([](const PairRotation& w, size_t begin, size_t end) { RotatePairs(w, begin, end); }));
  });
}

TEST(RotatePairsTest, MatchesTheFormulaOnEveryTarget) {
  std::mt19937_64 random(PrintedSeed(20240601));
  std::vector<size_t> sizes;
  for (size_t pairs = 1; pairs <= 70; ++pairs) sizes.push_back(pairs);
  sizes.insert(sizes.end(), {96, 128, 192});
  const size_t one_in = std::min<size_t>(OneIn(), 8);
  size_t turn = 0;
  for (size_t pairs : sizes) {
    for (const Case& c : AllCases()) {
      const size_t n = turn++;
      if ((n + pairs) % one_in != 0) continue;
      CheckCase(c, pairs, kLayouts[(n / one_in + pairs) % std::size(kLayouts)], random);  // each case with each layout
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(RotatePairsTest, HeadsAndElementsHaveEntriesOfTheirOwn) {
  std::mt19937_64 random(PrintedSeed(20261130));
  size_t turn = 0;
  for (size_t pairs : {1, 2, 3, 7, 16, 33, 48, 64}) {
    for (const Case& c : AllCases()) {
      const size_t n = turn++;
      if ((n + pairs) % OneIn() != 0) continue;
      const size_t own = n / OneIn() % 3;
      CheckCase(c, pairs, kLayouts[(n / OneIn() + pairs) % std::size(kLayouts)], random, 3, own != 1, own != 0);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(RotatePairsTest, RotatesWideRows) {
  std::mt19937_64 random(PrintedSeed(20240602));
  for (const Case& c : AllCases()) {
    if (c.table == DType::kFP64 || c.rounding == Rounding::kEachOperation) continue;
    CheckCase(c, 32768 / OneIn(), kLayouts[1], random);
  }
}

// A tile has sixteen tokens; the last one is shorter.
TEST(RotatePairsTest, WalksThroughTiles) {
  std::mt19937_64 random(PrintedSeed(20261123));
  for (const Case& c : AllCases()) {
    for (const size_t layout : {0, 4, 5}) CheckCase(c, 64, kLayouts[layout], random, 25);
  }
}

// Rotates one pair of `dtype` at offset 0. Returns the results as values.
std::pair<double, double> RotateOne(DType dtype, DType table, Rounding rounding, double x0, double x1, double c,
                                    double s) {
  std::byte x[16], y[16], cos[8], sin[8];
  reference::Encode(dtype, x0, x);
  reference::Encode(dtype, x1, x + SizeOf(dtype));
  reference::Encode(table, c, cos);
  reference::Encode(table, s, sin);
  const PairRotation work = {.dtype = dtype,
                             .head_dim = 2,
                             .pairs = 1,
                             .input_pairing = Pairing::kHalfSplit,
                             .output_pairing = Pairing::kHalfSplit,
                             .rounding = rounding,
                             .table_dtype = table,
                             .cos = cos,
                             .sin = sin,
                             .x = x,
                             .y = y,
                             .tokens = 1,
                             .heads = 1,
                             .token_stride = 0,
                             .head_stride = 0};
  RotatePairs(work, 0, 1);
  return {reference::Decode(dtype, y), reference::Decode(dtype, y + SizeOf(dtype))};
}

TEST(RotatePairsTest, TurnsAVectorByAQuarter) {
  OnEveryTarget([] {
    for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
      EXPECT_EQ(RotateOne(dtype, DType::kFP32, Rounding::kOnce, 1, 2, 0, 1), std::pair(-2.0, 1.0));
    }
  });
}

// (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11 in float32; a fused operation would keep the 2^-24.
TEST(RotatePairsTest, IsNotFused) {
  OnEveryTarget([] {
    const double x0 = 1 + 0x1p-12, c = 1 + 0x1p-12, x1 = 1, s = 1 + 0x1p-11;
    EXPECT_EQ(RotateOne(DType::kFP32, DType::kFP32, Rounding::kOnce, x0, x1, c, s).first, 0);
  });
}

// A float64 table's result just above the middle between two values of T must not be rounded to the middle first.
TEST(RotatePairsTest, RoundsFloat64ResultsOnce) {
  struct {
    DType dtype;
    double x, c, expected;
  } const cases[] = {
      {DType::kFP16, 1, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-10},
      {DType::kFP16, 1, 1 + 0x1p-11, 1},
      {DType::kFP16, 1, 0x1p-25 + 0x1p-60, 0x1p-24},
      {DType::kFP16, 1, 0x1p-25, 0},
      {DType::kFP16, 1, 65520 - 0x1p-30, 65504},
      {DType::kFP16, 1, 65520, std::numeric_limits<double>::infinity()},
      {DType::kBF16, 1, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7},
      {DType::kBF16, 1, 1 + 3 * 0x1p-8 - 0x1p-40, 1 + 0x1p-7},
      {DType::kBF16, 1, 0x1p-134 + 0x1p-170, 0x1p-133},
      {DType::kBF16, 1, 0x1p-134, 0},
      {DType::kBF16, 1, 0x1.ffp127 - 0x1p80, 0x1.fep127},
      {DType::kBF16, 1, 0x1.ffp127, std::numeric_limits<double>::infinity()},
      {DType::kFP32, 1, 1 + 0x1p-24 + 0x1p-50, 1 + 0x1p-23},
      {DType::kFP32, 1, 0x1.ffffffp127 - 0x1p80, 0x1.fffffep127},
      {DType::kFP32, 1, 0x1.ffffffp127, std::numeric_limits<double>::infinity()},
      {DType::kFP32, -1, 0x1p300, -std::numeric_limits<double>::infinity()},
  };
  OnEveryTarget([&] {
    for (const auto& c : cases) {
      for (Rounding rounding : {Rounding::kOnce, Rounding::kEachOperation}) {
        EXPECT_EQ(RotateOne(c.dtype, DType::kFP64, rounding, c.x, 0, c.c, 0).first, c.expected)
            << Name(c.dtype) << " " << c.c;
      }
    }
  });
}

// Rotating the pair (1, 0) gives the rounded cosine and sine; here these are numbers around every boundary.
TEST(RotatePairsTest, RoundsAroundEveryBoundary) {
  constexpr size_t kPairs = 64, kHeads = 4;
  for (DType dtype : {DType::kFP16, DType::kBF16}) {
    std::vector<float> table = AroundBoundaries<float>(dtype);
    table.resize((table.size() + kPairs - 1) / kPairs * kPairs);
    for (Pairing pairing : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
      const auto is_first = [&](size_t n) {
        return pairing == Pairing::kInterleaved ? n % 2 == 0 : n % (2 * kPairs) < kPairs;
      };
      const size_t tokens = table.size() / kPairs, elements = tokens * kHeads * 2 * kPairs, row = 2 * kPairs * 2;
      Block x(elements * 2), y(elements * 2);
      for (size_t n = 0; n < elements; ++n) reference::Encode(dtype, is_first(n) ? 1 : 0, x.data() + 2 * n);
      const PairRotation work = {.dtype = dtype,
                                 .head_dim = 2 * kPairs,
                                 .pairs = kPairs,
                                 .input_pairing = pairing,
                                 .output_pairing = pairing,
                                 .rounding = Rounding::kOnce,
                                 .table_dtype = DType::kFP32,
                                 .cos = table.data(),
                                 .sin = table.data(),
                                 .x = x.data(),
                                 .y = y.data(),
                                 .tokens = tokens,
                                 .heads = kHeads,
                                 .token_stride = kHeads * row,
                                 .head_stride = row};
      Block expected(elements * 2);
      for (size_t n = 0; n < elements; ++n) {
        const size_t token = n / (kHeads * 2 * kPairs), place = n % (2 * kPairs);
        const size_t pair = pairing == Pairing::kInterleaved ? place / 2 : place % kPairs;
        reference::Encode(dtype, table[token * kPairs + pair], expected.data() + 2 * n);
      }
      OnEveryTarget([&] {
        RotatePairs(work, 0, tokens);
        ExpectSameBytes(expected, y);
      });
    }
  }
}

// BF16: 1.0078125 * 1.0078125 = 1.01568603515625 rounds to 1.015625, and 1.015625 - 1.0078125 = 2^-7 exactly.
TEST(RotatePairsTest, RoundsEachOperation) {
  OnEveryTarget([] {
    const double x = 1.0078125;
    EXPECT_EQ(RotateOne(DType::kBF16, DType::kFP32, Rounding::kEachOperation, x, x, x, 1).first, 0x1p-7);
    EXPECT_EQ(RotateOne(DType::kBF16, DType::kFP32, Rounding::kOnce, x, x, x, 1).first, 0.00787353515625);
  });
}

}  // namespace
}  // namespace posenc
