// Cosines and sines of a call: one row per token, from its sequence's plan.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/device/device.h"
#include "posenc/rotary/positions.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc {

// Plans for all sequences of a call. Immutable; rows are computed on demand into the caller's scratch.
class TableRows {
 public:
  static absl::StatusOr<TableRows> Create(const Rotary& rotary, TokenPositions positions, Direction direction,
                                          const Limits& limits);
  // The exact rows of one plan, for all sequences.
  static TableRows OfPlan(RotaryPlan plan, TokenPositions positions);
  // The rows that turn what the rows of `from` have rotated to where those of `to` rotate it: angles are the
  // differences of both, and the attention scaling is their quotient, rounded once to float64. The rotations must be
  // those of CheckMove() (posenc/rotary/moved_keys.h). Errors name the field within an ApplyRotary.
  static absl::StatusOr<TableRows> Moving(TableRows to, TableRows from, const Limits& limits);

  const TokenPositions& positions() const { return positions_; }
  size_t pairs() const { return pairs_; }
  // Entries of a row: those of every head, if heads differ; of each head those of the pairs' first elements, then, if
  // they differ, those of the second ones. pairs() if neither differs.
  size_t width() const { return width_; }
  // One entry for all sequences, or one per sequence. Entries of equal length share a plan.
  size_t entries() const { return moved_ ? moved_->plan_of.size() : plan_of_.size(); }
  const RotaryPlan& plan(int64_t sequence) const {
    return *plans_[plan_of_.size() == 1 ? plan_of_[0] : plan_of_[sequence]];
  }

  // True if all sequences share their rows: token s of any sequence has the row of token s of the first.
  bool same_for_all() const {
    return positions_.same_for_all() && (!moved_ || moved_->positions.same_for_all()) && entries() == 1;
  }

  // True if q and k have different rows (xPos), or q is multiplied.
  bool differ_by_operand() const { return plans_[0]->xpos.has_value() || scales_query_; }
  // True if a token's query_scale is not 1.
  bool scales_query() const { return scales_query_; }
  // True if q's rows contain its factors. Else rotated elements must be multiplied by QueryFactors, too.
  bool contain_factors() const { return arithmetic_ == Frequencies::kExact && !table_; }
  // Factors of q for tokens [token, token + count), all of one sequence; reciprocals for kInverse.
  std::vector<float> QueryFactors(int64_t token, int64_t count) const;

  // Writes rows [count, width] of `dtype` for tokens [token, token + count), all of one sequence. kTranspose and
  // kInverse negate the sines, and kInverse divides by the attention scaling. q's rows may contain its query_scale.
  // `large`: they are part of a result that exceeds the caches.
  void Compute(int64_t token, int64_t count, DType dtype, Operand operand, void* cos, void* sin,
               bool large = false) const;
  // Cache key of what Compute writes. Not for given tables.
  std::string Key(int64_t token, int64_t count, DType dtype, Operand operand) const;
  // Inputs from which a device computes the rows that Compute writes. The tokens may span sequences if there is one
  // entry. Nullopt without has_recipe().
  std::optional<TableRecipe> Recipe(int64_t token, int64_t count, DType dtype) const;
  // Bytes that Recipe() holds while it copies the positions of `rows` rows.
  int64_t RecipeBytes(int64_t rows) const;
  bool is_given() const { return table_.has_value(); }
  bool has_recipe() const {
    return !table_ && !differ_by_operand() && width_ == pairs_ && plans_[0]->terms == 1 && !is_difference();
  }
  // The plan by which rows are computed. It differs from plan() where keys move.
  const RotaryPlan& ComputedPlan(int64_t sequence) const {
    return moved_ ? moved_->plans[moved_->plan_of.size() == 1 ? 0 : moved_->plan_of[sequence]] : plan(sequence);
  }

 private:
  // Where tensors are that move, which are rotated already.
  struct Moved {
    TokenPositions positions;
    std::vector<RotaryPlan> plans;  // distinct; from there to here
    std::vector<size_t> plan_of;    // as plan_of_
    // Frequencies are equal, and all differences of positions are doubles: rows are those of the differences.
    bool by_difference = false;
  };

  explicit TableRows(TokenPositions positions) : positions_(std::move(positions)) {}
  // Angles are differences of two products, not products of a difference.
  bool is_difference() const { return moved_ && !moved_->by_difference; }
  bool DifferencesAreExact(const TokenPositions& from) const;
  bool axes_differ() const { return positions_.axes_differ() || (moved_ && moved_->positions.axes_differ()); }
  void SetColumns();
  void LookUp(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;
  void ComputeSums(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;
  void ComputeDifferences(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;
  void ComputeAxis(int64_t axis, int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const;
  // With by_difference, the differences of the positions.
  std::vector<double> PositionsOf(int64_t token, int64_t count, int64_t axis) const;
  std::vector<double> FromPositionsOf(int64_t token, int64_t count) const;
  std::vector<double> IndexesOf(int64_t token, int64_t count) const;
  // Number of axes whose positions the rows depend on.
  int64_t axes() const { return axes_differ() ? positions_.axes() : 1; }

  TokenPositions positions_;
  std::vector<std::shared_ptr<const RotaryPlan>> plans_;  // distinct
  std::vector<size_t> plan_of_;                           // index into plans_, for all sequences or for each
  Frequencies arithmetic_ = Frequencies::kExact;
  Direction direction_ = Direction::kForward;
  size_t pairs_ = 0, width_ = 0;
  bool differs_in_pair_ = false;
  std::vector<size_t> sources_;  // see Rotary::sources(); for a given table
  bool scales_query_ = false;
  std::vector<std::vector<size_t>> columns_of_;  // the entries of each axis
  std::optional<GivenTable> table_;
  std::optional<Moved> moved_;
};

}  // namespace posenc
