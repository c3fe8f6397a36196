// Parts of the evidence: sets of head rows, and the boxes of them that may share an explanation.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/diagnose/evidence.h"

namespace posenc::diagnose {

// Head rows of each operand: [tokens * heads], nonzero for those in the set.
using RowSet = std::vector<std::vector<uint8_t>>;

// The heads of the operand that have a row in the set, ascending.
std::vector<int64_t> HeadsIn(const Evidence& evidence, size_t operand, const RowSet& rows);
RowSet NoRows(const Evidence& evidence);
bool IsEmpty(const RowSet& rows);
int64_t CountOf(const RowSet& rows);
RowSet Complement(const RowSet& rows);
// The rows that are in both sets.
RowSet Both(const RowSet& a, const RowSet& b);
// a without the rows of b.
RowSet Without(const RowSet& a, const RowSet& b);
// Adds `more`. Either set may be empty.
void AddRows(const RowSet& more, RowSet* rows);

// The tokens of each batch row, or of each sequence of a packed tensor. `evidence` must outlive it.
class BatchRows {
 public:
  BatchRows(const Evidence& evidence, const Rows& rows);
  int64_t count() const { return count_; }
  int64_t longest() const { return longest_; }  // tokens
  int64_t Begin(int64_t row) const { return packed_ ? tokens_.bounds[row] : row * length_; }
  int64_t End(int64_t row) const { return Begin(row + 1); }
  // The batch row of a token.
  int64_t Of(int64_t token) const { return packed_ ? tokens_.SequenceOf(token) : token / length_; }
  // The batch rows that have tokens. There may be many others, with any number of heads.
  const std::vector<int64_t>& filled() const { return filled_; }

 private:
  const Tokens& tokens_;
  const int64_t length_;
  bool packed_ = false;
  int64_t count_ = 0, longest_ = 0;
  std::vector<int64_t> filled_;
};

// Rows of `rest` that an explanation with these misfits explains by more than chance: the rows of each head of a batch
// row in which it explains all (whole_heads), or else runs of at least 16.
RowSet ExplainedRows(const Evidence& evidence, const RowSet& rest, const RowSet& misfits, bool whole_heads);

// Boxes of rows that may share an explanation: of all operands in `rest`, then of one.
std::vector<Box> BoxesOf(const Evidence& evidence, const RowSet& rest);

}  // namespace posenc::diagnose
