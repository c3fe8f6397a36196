// What a diagnosis looks at: tensors from before and after, token by token, and where the tokens are said to stand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/byte_source.h"
#include "posenc/base/limits.h"
#include "posenc/base/tensor.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// A tensor [tokens, heads, width] in some layout, before and after; FP64, FP32, FP16 or BF16, the two maybe of
// different types.
struct Rows {
  Operand which = Operand::kQuery;
  Layout layout = Layout::kTHD;
  DType before_dtype = DType::kFP32, after_dtype = DType::kFP32;
  int64_t sequences = 1, length = 0, heads = 0, width = 0;  // tokens: sequences * length
  std::shared_ptr<const ByteSource> before, after;
  // Of a sample: what it was taken from, and its tokens there; its heads are evenly spread.
  std::shared_ptr<const Rows> sampled_from = nullptr;
  std::vector<int64_t> sampled_tokens = {};

  int64_t tokens() const { return sequences * length; }
  // Writes [count, heads, width] of tokens [token, token + count), head rows of a token together.
  void Load(bool of_before, int64_t token, int64_t count, std::byte* out) const;
  // Where element `element` of that row stands in the tensor.
  std::vector<int64_t> Index(int64_t token, int64_t head, int64_t element) const;
};

// The tokens of all sequences, one after the other.
struct Tokens {
  std::vector<std::vector<double>> positions;  // [axes][tokens]
  std::vector<int64_t> bounds;                 // where sequences begin and the last ends
  std::vector<int64_t> seq_len;                // of the scaling: none, one for all, or one a sequence

  int64_t count() const { return bounds.back(); }
  int64_t axes() const { return static_cast<int64_t>(positions.size()); }
  int64_t SequenceOf(int64_t token) const;
};

struct Evidence {
  std::vector<Rows> operands;  // q; k
  Tokens tokens;
  bool is_table = false;  // MakeTable made it: half-split, all of it
};

// A caller's tensor. `before` and `after` are of the same shape; errors name them within `field`.
struct TensorPair {
  TensorShape before, after;
  std::shared_ptr<const ByteSource> x, y;
};
absl::StatusOr<Rows> MakeRows(std::string_view field, Operand which, const TensorPair& pair, Layout layout,
                              const Limits& limits);

// Cosines and sines [rows, pairs] as what they make of pairs (1, 0): before [rows, 1, 2 * pairs] is ones and zeros,
// after the two side by side. Errors name the field within TableEvidence.
struct TablePair {
  TensorShape cos, sin;
  std::shared_ptr<const ByteSource> cos_bytes, sin_bytes;
  TableForm form = TableForm::kHalfWidth;
  int64_t half_split_parts = 1;  // kDuplicated: each part stands twice
};
absl::StatusOr<Rows> MakeTable(const TablePair& table, const Limits& limits);

// Where the caller says that tokens stand; `asked` has a say in axes and whether a scaling length is needed. Errors
// name the field within Positions.
absl::StatusOr<Tokens> MakeTokens(const Positions& positions, const std::optional<Rotary>& asked, int64_t sequences,
                                  int64_t length, bool packed, const Limits& limits);

// A part that is large enough to measure: runs of neighbours at the beginning, in the middle and at the end, tokens
// between them, some of the heads. All of it, where it is small.
Evidence Sample(const Evidence& all);

}  // namespace posenc::diagnose
