#include "posenc/rotary/rotate_pieces.h"

#include <algorithm>

#include "posenc/base/line_allocator.h"

namespace posenc {
namespace {

// Rows with consecutive offsets: all heads of a token, then of the next token; or one head's rows of all tokens.
class Rows {
 public:
  Rows(PairRotation work, const ByteSource& x, std::byte* y)
      : work_(work), x_(x), y_(y), row_(work.head_dim * SizeOf(work.dtype)) {}

  // Rotates `heads` rows of each of `tokens` tokens, from byte `start` on, by the entries of the heads from `head` on.
  void Rotate(size_t start, size_t tokens, size_t heads, size_t head = 0) {
    const size_t rows = tokens * heads;
    for (size_t done = 0; done < rows;) {
      const size_t at = start + done * row_;
      const absl::Span<const std::byte> piece = x_.From(at);
      const size_t together = std::min(piece.size() / row_, rows - done);
      if (together == 0) {
        RotateSome(done / heads, head + done % heads, 1, 1, Gather(at), at);
        ++done;
        continue;
      }
      // The rest of a token, or whole tokens, or the beginning of a token.
      const size_t within = done % heads;
      const bool whole = within == 0 && together >= heads;
      const size_t n = whole ? together / heads * heads : std::min(together, heads - within);
      RotateSome(done / heads, head + within, whole ? n / heads : 1, whole ? heads : n, piece.data(), at);
      done += n;
    }
  }

 private:
  // Copies a row that spans several pieces into one buffer.
  const std::byte* Gather(size_t at) {
    gathered_.resize(row_);
    Copy(x_, at, row_, gathered_.data());
    return gathered_.data();
  }

  void RotateSome(size_t token, size_t head, size_t tokens, size_t heads, const std::byte* x, size_t at) {
    PairRotation some = work_;
    Advance(some, token, head);
    some.x = x;
    some.y = y_ + at;
    some.tokens = tokens;
    some.heads = heads;
    some.head_stride = row_;
    some.token_stride = heads * row_;
    RotatePairs(some, 0, tokens);
  }

  const PairRotation work_;
  const ByteSource& x_;
  std::byte* const y_;
  const size_t row_;  // bytes
  LineVector<std::byte> gathered_;
};

// Bytes of a head row above which the kernel does not copy what is not rotated: it has no interruption points.
constexpr size_t kLongRow = size_t{1} << 20;

// Rotates row by row, and copies what is not rotated with interruption points.
void RotateLongRows(const PairRotation& work, const ByteSource& x, std::byte* y, size_t start) {
  const size_t element = SizeOf(work.dtype), before = work.rotary_offset * element, rotated = 2 * work.pairs * element;
  const size_t after = work.head_dim * element - before - rotated;
  PairRotation one = work;
  one.head_dim = 2 * work.pairs;
  one.rotary_offset = 0;
  one.tokens = one.heads = 1;
  one.token_stride = one.head_stride = rotated;
  for (size_t token = 0; token < work.tokens; ++token) {
    for (size_t head = 0; head < work.heads; ++head) {
      one.cos = work.cos;
      one.sin = work.sin;
      Advance(one, token, head);
      const size_t row = start + token * work.token_stride + head * work.head_stride, first = row + before;
      Copy(x, row, before, y + row);
      RotatePieces(one, x, y, first);
      Copy(x, first + rotated, after, y + first + rotated);
    }
  }
}

}  // namespace

void RotatePieces(PairRotation work, const ByteSource& x, std::byte* y, size_t start) {
  const size_t heads = work.heads;
  const size_t row = work.head_dim * SizeOf(work.dtype);
  if (row > kLongRow && work.head_dim > 2 * work.pairs) return RotateLongRows(work, x, y, start);
  Rows rows(work, x, y);
  if (work.head_stride == row && (work.tokens == 1 || work.token_stride == work.heads * row)) {
    return rows.Rotate(start, work.tokens, work.heads);
  }
  const size_t head_bytes = (work.tokens - 1) * work.token_stride + row;  // from a head's first row to its last
  const PairRotation all = work;
  for (size_t head = 0; head < heads;) {
    const size_t at = start + head * work.head_stride;
    const absl::Span<const std::byte> piece = x.From(at);
    if (piece.size() < head_bytes) {
      rows.Rotate(at, work.tokens, 1, head);
      ++head;
      continue;
    }
    work = all;
    Advance(work, 0, head);
    work.x = piece.data();
    work.y = y + at;
    work.heads = std::min(heads - head, (piece.size() - head_bytes) / work.head_stride + 1);
    RotatePairs(work, 0, work.tokens);
    head += work.heads;
  }
}

}  // namespace posenc
