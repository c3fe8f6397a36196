// Primitive: rotates pairs of elements by given cosines and sines (RoPE's only data pass).
//
// For pair k of a head row, with c = cos[k] and s = sin[k] of the row's token:
//
//   y0 = x0*c - x1*s          interleaved  [x0 x1 | x2 x3 | ...]   pair k = (2k, 2k+1)
//   y1 = x1*c + x0*s          half-split   [x0 x1 ... | xP ...]    pair k = (k, k+P),  P = pairs
//
// The elements of a pair may have entries of their own (second_entry): y1 = x1*c1 + x0*s1, y0 = x0*c0 - x1*s0.
//
// Both pairings cover the 2*pairs elements from rotary_offset on; elements outside them are copied bit for bit.
// Half-split may divide them into consecutive parts of equal size (half_split_parts), each with its own halves.
#pragma once

#include <cstddef>

#include "posenc/base/dtype.h"
#include "posenc/base/modes.h"

namespace posenc {

struct PairRotation {
  DType dtype;               // element type of x and y: FP32, FP16 or BF16
  size_t head_dim;           // D: elements of one head row
  size_t rotary_offset = 0;  // first rotated element of a head row
  size_t pairs;              // rotary_dim / 2, at least 1; rotary_offset + 2*pairs <= head_dim
  Pairing input_pairing;
  Pairing output_pairing;
  size_t half_split_parts = 1;  // must divide pairs
  Rounding rounding;

  bool large = false;  // x and y exceed the caches: prefetch x, and bypass them in stores where alignment allows

  DType table_dtype;  // element type of cos and sin: FP32 or FP64 (a narrower table is widened to FP32 beforehand)
  const void* cos;    // [tokens, pairs], row-major, unless the distances below say otherwise
  const void* sin;    // like cos; negated by the caller for the reverse direction
                      // A NaN in cos or sin must have a payload of zeros, as arithmetic produces it.

  const std::byte* x;  // either equal to y (in place) or not overlapping it
  std::byte* y;
  size_t tokens;  // rows of the table
  size_t heads;
  size_t token_stride;  // bytes from one token's first head row to the next token's
  size_t head_stride;   // bytes from one head row to the next of the same token

  // Distances in cos and sin, in entries.
  size_t token_entries = 0;  // from one token to the next; 0: pairs
  size_t head_entries = 0;   // from one head to the next; 0: all heads have the same entries
  size_t second_entry = 0;   // from a pair's entry for x0, y0 to that for x1, y1; 0: both have the same

  size_t entries_of_token() const { return token_entries != 0 ? token_entries : pairs; }
};

// Advances cos and sin by `tokens` tokens and `heads` heads.
void Advance(PairRotation& work, size_t tokens, size_t heads);

// Floats of Run's scratch buffer for a tile of the table: 16 KiB, half of the smallest L1 data cache.
inline constexpr size_t kTableFloats = 4096;

// Rotates the head rows of tokens [begin, end), with one dispatched call. Thread-safe for disjoint ranges. Aborts on
// other dtypes. No access outside the head rows, no alignment needed. Same bytes on every CPU target, except for NaN
// payloads. NaN, infinities, signed zeros and subnormals follow IEEE arithmetic.
void RotatePairs(const PairRotation& work, size_t begin, size_t end);

}  // namespace posenc
