// The parts that all rules share: a sequence without its padding, and grids that are taken in the order of the spans.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/positions/description.h"

namespace posenc {

// Tokens of one sequence that are no padding, and the ids that a rule gives them.
class Sequence {
 public:
  Sequence(const TokenDescription& tokens, int64_t number, CountedPositions* result);

  int64_t number() const { return number_; }
  int64_t size() const { return static_cast<int64_t>(index_.size()); }
  TokenKind kind(int64_t n) const { return kinds_.empty() ? TokenKind::kText : static_cast<TokenKind>(kinds_[n]); }
  int64_t input_id(int64_t n) const { return input_ids_[n]; }
  const std::vector<int64_t>& input_ids() const { return input_ids_; }
  // End of the run of tokens of one kind that begins at token n.
  int64_t RunEnd(int64_t n) const;

  double& id(int64_t axis, int64_t n) { return result_.id(axis, index_[n]); }
  // Tokens begin .. end-1 have positions start, start+1, ... on all axes.
  void Count(int64_t begin, int64_t end, double start);
  void AddSpan(PositionSpan span, int64_t begin, int64_t end);
  // Largest id of all axes; -1 without tokens.
  double Largest();

  // "of sequence 1, tokens 7 to 11", with padding counted.
  std::string Place(int64_t begin, int64_t end) const;
  // INVALID_ARGUMENT unless all kinds are at most `last`.
  absl::Status CheckKinds(TokenKind last) const;

 private:
  const int64_t number_;
  const int64_t first_;         // first token in the arrays
  std::vector<int64_t> index_;  // token n's place in the arrays
  std::vector<uint8_t> kinds_;
  std::vector<int64_t> input_ids_;
  CountedPositions& result_;
};

// Calls `rule` for each sequence and writes its delta: the largest id + 1 - the number of tokens.
absl::Status ForEachSequence(const TokenDescription& tokens, CountedPositions* result,
                             absl::FunctionRef<absl::Status(Sequence& sequence)> rule);

// Takes the grids of one field in order.
class GridQueue {
 public:
  // `what`: "image", for errors. A null list has no grids. `by_frame`: each frame of a grid is taken on its own, as a
  // grid of one frame.
  GridQueue(std::string_view field, std::string_view what, const std::optional<std::vector<PatchGrid>>& grids,
            bool by_frame = false);

  // Number of grids, or of frames, that were taken.
  int64_t next() const { return next_; }
  // Row of the grid that was taken last, and the frame of it.
  int64_t row() const { return row_; }
  int64_t frame() const { return frame_; }
  std::string FieldOfLast() const;
  // INVALID_ARGUMENT if there is none left for the span.
  absl::StatusOr<PatchGrid> Take(const Sequence& sequence, int64_t begin, int64_t end);
  // Take(), and divides the grid by the merged patches. INVALID_ARGUMENT unless they divide it.
  absl::StatusOr<PatchGrid> TakeMerged(const Sequence& sequence, int64_t begin, int64_t end, int64_t merge_t,
                                       int64_t merge);
  // INVALID_ARGUMENT unless the span has `expected` tokens, which the last grid taken stands for. `count`: tokens of
  // the span that are the grid's, if not all are.
  absl::Status CheckSpan(const Sequence& sequence, int64_t begin, int64_t end, int64_t expected) const {
    return CheckSpan(sequence, begin, end, expected, end - begin);
  }
  absl::Status CheckSpan(const Sequence& sequence, int64_t begin, int64_t end, int64_t expected, int64_t count) const;
  // INVALID_ARGUMENT if grids are left over.
  absl::Status CheckAllTaken() const;

 private:
  // The number of grids, and what each is for, in words.
  std::string Given() const;
  std::string Purpose() const;

  const std::string_view field_, what_;
  const std::vector<PatchGrid> grids_;
  const bool by_frame_;
  int64_t next_ = 0, row_ = -1, frame_ = 0;
};

// Product of a grid's sides, cut to 2^62.
int64_t Cells(const PatchGrid& grid);
// "[1, 4, 6]"
std::string ToString(const PatchGrid& grid);

// INVALID_ARGUMENT unless there are as many second_per_grid_ts as videos.
absl::Status CheckSeconds(const TokenDescription& tokens);

// Reads a count of the file, `otherwise` without it. INVALID_ARGUMENT if it is 0.
absl::StatusOr<int64_t> CountInFile(const ConfigObject& object, std::string_view field, int64_t otherwise);

// INVALID_ARGUMENT (MISSING) that says which class requires the field.
absl::Status Requires(std::string_view field, std::string_view why);

}  // namespace posenc
