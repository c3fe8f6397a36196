// Digests of rotations.
#include <fmt/format.h>

#include <cstring>

#include "posenc/kernels/rotate_pairs.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

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
  size_t after;   // elements after the rotated ones
  size_t gap;     // bytes between head rows
  bool heads_outermost;
  size_t parts = 1;  // half_split_parts
  bool large = false;
  bool by_head = false;     // each head has its own entries
  bool by_element = false;  // a pair's elements have their own entries
};

// Rotates tokens 1 and 2 of three. Returns all of y's memory, including token 0 and the gaps.
Block RunRotate(const RotateCase& c) {
  constexpr size_t kTokens = 3;
  const size_t head_dim = c.before + 2 * c.pairs + c.after;
  const size_t step = head_dim * SizeOf(c.dtype) + c.gap;
  const size_t head_rows = kTokens * c.heads;
  const size_t of_head = c.pairs * (c.by_element ? 2 : 1), of_token = of_head * (c.by_head ? c.heads : 1);
  const size_t entries = kTokens * of_token;
  Block cos(entries * SizeOf(c.table), 1), sin = cos;
  const size_t offset = c.large ? 0 : 1;  // streaming stores write whole aligned vectors only
  Block x(head_rows * step, offset);
  FillWithElements(c.table, 1, 0, entries, cos.data());
  FillWithElements(c.table, 2, 0, entries, sin.data());
  MakeNansEqual(c.table, cos.data(), entries);
  MakeNansEqual(c.table, sin.data(), entries);
  std::memset(x.data(), 0x5a, x.size());
  for (size_t row = 0; row < head_rows; ++row) {
    FillWithElements(c.dtype, 3, row * head_dim, head_dim, x.data() + row * step);
  }
  Block y = x;
  if (!c.in_place) std::memset(y.data(), 0xa5, y.size());
  const PairRotation work = {.dtype = c.dtype,
                             .head_dim = head_dim,
                             .rotary_offset = c.before,
                             .pairs = c.pairs,
                             .input_pairing = c.input,
                             .output_pairing = c.output,
                             .half_split_parts = c.parts,
                             .rounding = c.rounding,
                             .large = c.large,
                             .table_dtype = c.table,
                             .cos = cos.data(),
                             .sin = sin.data(),
                             .x = c.in_place ? y.data() : x.data(),
                             .y = y.data(),
                             .tokens = kTokens,
                             .heads = c.heads,
                             .token_stride = c.heads_outermost ? step : c.heads * step,
                             .head_stride = c.heads_outermost ? kTokens * step : step,
                             .token_entries = of_token,
                             .head_entries = c.by_head ? of_head : 0,
                             .second_entry = c.by_element ? c.pairs : 0};
  RotatePairs(work, 1, kTokens);
  for (size_t token = 1; token < kTokens; ++token) {
    for (size_t head = 0; head < c.heads; ++head) {
      const size_t start = token * work.token_stride + head * work.head_stride + c.before * SizeOf(c.dtype);
      MakeNansEqual(c.dtype, y.data() + start, 2 * c.pairs);
    }
  }
  return y;
}

void Add(const RotateCase& c, std::vector<Case>* cases) {
  cases->push_back(
      {fmt::format("dtype={} table={} rounding={} input={} output={} in_place={:d} pairs={} heads={} "
                   "before={} after={} gap={} heads_outermost={:d}{}{}{}{}",
                   Name(c.dtype), Name(c.table), Name(c.rounding), Name(c.input), Name(c.output), c.in_place, c.pairs,
                   c.heads, c.before, c.after, c.gap, c.heads_outermost,
                   c.parts == 1 ? "" : fmt::format(" half_split_parts={}", c.parts), c.large ? " large=1" : "",
                   c.by_head ? " by_head=1" : "", c.by_element ? " by_element=1" : ""),
       [c] { return RunRotate(c); }});
}

// Cases of half-split rotation in several parts.
void AddParts(std::vector<Case>* cases) {
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const Pairing input : kPairings) {
        for (const bool in_place : {false, true}) {
          const size_t n = cases->size(), parts = Turn<size_t>(n, {2, 3});
          Add({.dtype = dtype,
               .table = DType::kFP32,
               .rounding = rounding,
               .input = input,
               .output = Pairing::kHalfSplit,
               .in_place = in_place,
               .pairs = parts * Turn<size_t>(n, {1, 5, 16, 33, 64}),
               .heads = 2,
               .before = Turn<size_t>(n, {0, 1}),
               .after = Turn<size_t>(n, {0, 0, 3}),
               .gap = 0,
               .heads_outermost = false,
               .parts = parts},
              cases);
        }
      }
    }
  }
}

// Head counts for which the table's row is expanded or split, and tensors written with streaming stores.
void AddManyHeads(std::vector<Case>* cases) {
  constexpr size_t kManyHeads[] = {4, 5, 32};
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const Pairing pairing : kPairings) {
        for (const bool in_place : {false, true}) {
          for (const bool large : {false, true}) {
            for (const size_t heads : kManyHeads) {
              const size_t n = cases->size();
              const size_t parts = pairing == Pairing::kHalfSplit ? Turn<size_t>(n, {1, 2, 1, 3, 1}) : 1;
              Add({.dtype = dtype,
                   .table = DType::kFP32,
                   .rounding = rounding,
                   .input = pairing,
                   .output = pairing,
                   .in_place = in_place,
                   .pairs = parts * (large ? Turn<size_t>(n, {32, 64, 16, 128, 48, 64, 96})
                                           : Turn<size_t>(n, {1, 64, 7, 33, 16, 2, 330})),
                   .heads = heads,
                   .before = large ? Turn<size_t>(n, {0, 32}) : Turn<size_t>(n, {0, 0, 1, 4}),
                   .after = large ? Turn<size_t>(n, {0, 0, 0, 32, 64}) : Turn<size_t>(n, {0, 5, 0, 2, 0}),
                   .gap = large ? Turn<size_t>(n, {0, 0, 64, 64}) : Turn<size_t>(n, {0, 7, 0, 64}),
                   .heads_outermost = n % 11 < 5,
                   .parts = parts,
                   .large = large},
                  cases);
            }
          }
        }
      }
    }
  }
}

// Cases in which heads, or the elements of a pair, have entries of their own.
void AddOwnEntries(std::vector<Case>* cases) {
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const Pairing input : kPairings) {
        for (const bool in_place : {false, true}) {
          for (const int own : {1, 2, 3}) {
            const size_t n = cases->size();
            Add({.dtype = dtype,
                 .table = Turn(n, {DType::kFP32, DType::kFP32, DType::kFP64}),
                 .rounding = rounding,
                 .input = input,
                 .output = Turn(n, {Pairing::kInterleaved, Pairing::kHalfSplit}),
                 .in_place = in_place,
                 .pairs = Turn<size_t>(n, {1, 64, 7, 33, 16}),
                 .heads = Turn<size_t>(n, {3, 4, 32}),
                 .before = Turn<size_t>(n, {0, 1}),
                 .after = Turn<size_t>(n, {0, 0, 3}),
                 .gap = 0,
                 .heads_outermost = n % 11 < 5,
                 .by_head = (own & 1) != 0,
                 .by_element = (own & 2) != 0},
                cases);
          }
        }
      }
    }
  }
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
                Add(c, &cases);
              }
            }
          }
        }
      }
    }
  }
  AddParts(&cases);
  AddManyHeads(&cases);
  AddOwnEntries(&cases);
  return cases;
}

}  // namespace

TEST_P(DigestTest, RotatePairs) { Check("rotate_pairs", RotateCases()); }

}  // namespace posenc
