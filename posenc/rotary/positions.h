// Positions of a call's tokens, computed a slab at a time: nothing of the tensors' size is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/rotary/position_segments.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Tokens of a call: `sequences` sequences of `length` tokens each, or packed sequences.
struct TokenGrid {
  int64_t sequences;  // B; 1 when packed
  int64_t length;     // S; T when packed
  bool packed;        // layout THD: cu_seqlens may divide the tokens
  int64_t axes = 1;   // values per position
  bool reads_cache_index = false;
};

// Returns RESOURCE_EXHAUSTED if cu_seqlens divides more sequences than max_sequences.
absl::Status CheckSequences(int64_t sequences, const Limits& limits);

class TokenPositions {
 public:
  // Checks that the source fits the grid. Errors name the field within Positions.
  static absl::StatusOr<TokenPositions> Create(Positions positions, const TokenGrid& grid, const Limits& limits);

  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return begin(sequences_); }
  // Sequence n holds tokens begin(n) .. begin(n+1)-1, counted over the whole call.
  int64_t begin(int64_t n) const { return bounds_.empty() ? n * length_ : bounds_[n]; }
  // Index of the sequence that a token belongs to.
  int64_t SequenceOf(int64_t token) const;

  // True if token s has the same position in every sequence (of equal length).
  bool same_for_all() const { return same_for_all_; }

  int64_t axes() const { return axes_; }
  // True if a token's positions may differ by axis.
  bool axes_differ() const { return axes_differ_; }

  // Writes the positions on `axis` of tokens [token, token + count), all of one sequence.
  void Fill(int64_t token, int64_t count, double* out, int64_t axis = 0) const;

  // Writes the tokens' indexes in the KV cache: positions, unless cache_index is given.
  void FillIndexes(int64_t token, int64_t count, double* out) const;
  // Returns INVALID_ARGUMENT naming the field if an index is negative. Positions must have one axis.
  absl::Status CheckIndexesNotNegative() const;
  // Largest of the tokens' indexes; 0 without tokens.
  double LargestIndex() const;

  // Returns INVALID_ARGUMENT unless all positions are integers in [0, rows). Positions must have one axis.
  absl::Status CheckIndices(int64_t rows) const;

  // Sequence lengths that RoPE scaling uses, by the rule: one entry for all sequences, or one per sequence. Call only
  // if the frequencies depend on the length. INVALID_ARGUMENT if the rule is missing.
  absl::StatusOr<std::vector<int64_t>> ScalingLengths(const Limits& limits) const;
  // Returns INVALID_ARGUMENT if a rule or length is given. Call if the frequencies do not depend on the length.
  absl::Status RefuseScalingLength() const;

 private:
  TokenPositions() = default;
  absl::Status CheckSource() const;
  absl::Status CheckIds(const PositionIds& source) const;
  absl::Status ReadSegments(const PositionSegments& segments);
  size_t SegmentOf(int64_t index) const;
  double Largest(int64_t sequence) const;
  int64_t LargestPlusOne(int64_t sequence) const { return static_cast<int64_t>(Largest(sequence)) + 1; }

  Positions positions_;
  std::vector<int64_t> bounds_;         // cu_seqlens, or empty: sequences of length_ each
  std::vector<int64_t> segment_begin_;  // first token of each segment, and the end of the last
  int64_t sequences_ = 0;
  int64_t length_ = 0;
  int64_t axes_ = 1;
  bool axes_differ_ = false;
  bool packed_ = false;
  bool same_for_all_ = false;
};

}  // namespace posenc
