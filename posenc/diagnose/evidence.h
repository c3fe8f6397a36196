// Input of a diagnosis: tensors before and after the encoding, by token, and the tokens' stated positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/byte_source.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

class OwnedBytes final : public ByteSource {
 public:
  explicit OwnedBytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  absl::Span<const std::byte> From(size_t offset) const override { return absl::MakeConstSpan(bytes_).subspan(offset); }

 private:
  const std::vector<std::byte> bytes_;
};

// Rows of a tensor by token and head: heads [head, head + heads) of tokens [token, token + tokens).
struct Block {
  int64_t token, tokens, head, heads;
};

// A tensor [tokens, heads, width] in some layout, before and after. Each is FP64, FP32, FP16 or BF16; the two types may
// differ.
struct Rows {
  Operand which = Operand::kQuery;
  Layout layout = Layout::kTHD;
  DType before_dtype = DType::kFP32, after_dtype = DType::kFP32;
  int64_t sequences = 1, length = 0, heads = 0, width = 0;  // tokens: sequences * length
  std::shared_ptr<const ByteSource> before, after;
  // Set for a sample: its source, and the indices of its tokens and heads there.
  std::shared_ptr<const Rows> sampled_from = nullptr;
  std::vector<int64_t> sampled_tokens = {}, sampled_heads = {};

  int64_t tokens() const { return sequences * length; }
  // Writes the block's rows [tokens, heads, width], row-major.
  void Load(bool of_before, const Block& block, std::byte* out) const;
  // Index in the tensor of an element of row (token, head); for a sample, in the tensor that it was taken from.
  std::vector<int64_t> Index(int64_t token, int64_t head, int64_t element) const;
};

// The tokens of all sequences, concatenated.
struct Tokens {
  std::vector<std::vector<double>> positions;  // [axes][tokens]
  std::vector<int64_t> bounds;                 // begin of each sequence, and the end of the last
  std::vector<int64_t> seq_len;                // scaling lengths: empty, one for all, or one per sequence

  int64_t count() const { return bounds.back(); }
  int64_t axes() const { return static_cast<int64_t>(positions.size()); }
  int64_t SequenceOf(int64_t token) const;
};

struct Evidence {
  std::vector<Rows> operands;  // q, k
  Tokens tokens;
  bool is_table = false;  // made by MakeTable: half-split, all elements rotate
};

// A caller's tensor. `before` and `after` must have the same shape; errors name them within `field`.
struct TensorPair {
  TensorShape before, after;
  std::shared_ptr<const ByteSource> x, y;
};
absl::StatusOr<Rows> MakeRows(std::string_view field, Operand which, const TensorPair& pair, Layout layout,
                              const Limits& limits);

// A table of cosines and sines [rows, pairs], expressed as its effect on pairs (1, 0): `before` [rows, 1, 2 * pairs]
// has ones and zeros, `after` has cosines and sines side by side. Errors name the field within TableEvidence.
struct TablePair {
  TensorShape cos, sin;
  std::shared_ptr<const ByteSource> cos_bytes, sin_bytes;
  std::optional<TableForm> form;      // absent: found from the width and from repeated entries
  int64_t half_split_parts = 1;       // kDuplicated: each part is repeated
  std::optional<int64_t> rotary_dim;  // that of the expected settings
};
absl::StatusOr<Rows> MakeTable(const TablePair& table, const Limits& limits);

// Resolves the caller's positions. `asked` sets the number of axes and whether a scaling length is needed. Errors name
// the field within Positions.
absl::StatusOr<Tokens> MakeTokens(Positions positions, const std::optional<Rotary>& asked, int64_t sequences,
                                  int64_t length, bool packed, const Limits& limits);

// Head rows: each of some tokens, of some heads of some operands.
struct Box {
  std::vector<size_t> operands;             // indices into Evidence::operands
  std::vector<int64_t> tokens;              // ascending
  std::vector<std::vector<int64_t>> heads;  // of each of `operands`
};
Box Whole(const Evidence& all);

// Returns a part of the box that is large enough to measure: runs of adjacent tokens at the beginning, in the middle
// and at the end, tokens between them, some of the heads. If there are few tokens, all of them.
Evidence Sample(const Evidence& all, const Box& box);

}  // namespace posenc::diagnose
