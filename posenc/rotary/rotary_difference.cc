#include "posenc/rotary/rotary_difference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "posenc/base/status.h"
#include "posenc/methods/rope/given_table.h"
#include "posenc/rotary/table_rows.h"

namespace posenc {
namespace {

constexpr int64_t kReportedPositions[] = {4095, 32767, 131071};
constexpr double kStopped = 0x1p-64;

bool SameScaling(const RotaryPlan& a, const RotaryPlan& b, double tolerance, double* tolerated) {
  if (!SameWithin(tolerance, a.attention_scaling, b.attention_scaling, tolerated)) return false;
  if (a.xpos.has_value() != b.xpos.has_value()) return false;
  return !a.xpos || (a.xpos->centre == b.xpos->centre && a.xpos->scale_base == b.xpos->scale_base);
}

// Compares the entries as float64, since the tables' types may differ.
bool SameTable(const GivenTable& a, const GivenTable& b) {
  if (a.rows != b.rows || a.width != b.width) return false;
  if (a.dtype == b.dtype && *a.cos == *b.cos && *a.sin == *b.sin) return true;
  const size_t bytes = a.width * sizeof(double);
  std::vector<std::byte> row_a(2 * bytes), row_b(2 * bytes);
  const int64_t rows_between_points = std::max<int64_t>(65536 / std::max<int64_t>(a.width, 1), 1);
  for (int64_t row = 0; row < a.rows; ++row) {
    if (row % rows_between_points == 0) InterruptionPoint();
    CopyRow(a, row, DType::kFP64, row_a.data(), row_a.data() + bytes);
    CopyRow(b, row, DType::kFP64, row_b.data(), row_b.data() + bytes);
    if (row_a != row_b) return false;
  }
  return true;
}

// Frequencies are compared as numbers: -0 and 0 rotate alike.
std::vector<size_t> DifferingPairs(const PlannedRotary& a, const PlannedRotary& b, double tolerance,
                                   double* tolerated) {
  std::vector<size_t> pairs;
  if (a.rotary->table() != nullptr || b.rotary->table() != nullptr) return pairs;
  const size_t common = std::min(a.pairs(), b.pairs());
  for (size_t i = 0; i < common; ++i) {
    const double x = a.inv_freq(i), y = b.inv_freq(i);
    const bool stopped = tolerance > 0 && std::max(std::fabs(x), std::fabs(y)) < kStopped;
    if ((!stopped && !SameWithin(tolerance, x, y, tolerated)) || (a.axis(i) != b.axis(i) && !stopped)) {
      pairs.push_back(i);
    }
  }
  for (size_t i = common; i < std::max(a.pairs(), b.pairs()); ++i) pairs.push_back(i);
  return pairs;
}

// Pairs of both sides whose table entries can differ, also by what a tolerance counts as equal.
std::vector<size_t> PairsToSearch(const PlannedRotary& a, const PlannedRotary& b, const RotaryDifference& difference) {
  const bool by_formula = a.rotary->table() == nullptr && b.rotary->table() == nullptr;
  const bool equal_scaling = difference.same_scaling && a.plan->attention_scaling == b.plan->attention_scaling;
  std::vector<size_t> pairs;
  for (size_t i = 0; i < std::min(a.pairs(), b.pairs()); ++i) {
    const bool equal = by_formula ? a.inv_freq(i) == b.inv_freq(i) : difference.same_table;
    if (!equal || !equal_scaling) pairs.push_back(i);
  }
  return pairs;
}

// Table rows of one side at positions 0, 1, ..., of some of its pairs.
class RowsOfPairs {
 public:
  // With a given table, `count` must be at most its number of rows.
  static absl::StatusOr<RowsOfPairs> Create(const PlannedRotary& side, const std::vector<size_t>& pairs,
                                            int64_t count) {
    const Positions from_zero{.source = OffsetPositions{0}};
    POSENC_ASSIGN_OR_RETURN(TokenPositions positions, TokenPositions::Create(from_zero, {1, count, false}, Limits()));
    if (side.rotary->table() != nullptr) {
      POSENC_ASSIGN_OR_RETURN(TableRows rows,
                              TableRows::Create(*side.rotary, std::move(positions), Direction::kForward, Limits()));
      return RowsOfPairs(std::move(rows), pairs);
    }
    RotaryPlan plan = *side.plan;
    plan.axis.clear();  // one axis: positions are equal on all of them
    if (plan.xpos) return RowsOfPairs(TableRows::OfPlan(std::move(plan), std::move(positions)), pairs);
    plan.inv_freq.clear();
    for (const size_t i : pairs) plan.inv_freq.push_back(side.inv_freq(i));
    std::vector<size_t> columns(pairs.size());
    std::iota(columns.begin(), columns.end(), 0);
    return RowsOfPairs(TableRows::OfPlan(std::move(plan), std::move(positions)), std::move(columns));
  }

  // T is float or double. The rows have their own width: see Cos() and Sin().
  template <class T>
  struct Block {
    std::vector<T> cos, sin;
  };
  template <class T>
  Block<T> Compute(int64_t position, int64_t count) const {
    Block<T> block;
    block.cos.resize(count * rows_.pairs());
    block.sin.resize(block.cos.size());
    rows_.Compute(position, count, sizeof(T) == sizeof(float) ? DType::kFP32 : DType::kFP64, Operand::kQuery,
                  block.cos.data(), block.sin.data());
    return block;
  }
  // Index in a block of the n-th of the pairs in the given row of the block.
  size_t Index(int64_t row, size_t n) const { return row * rows_.pairs() + columns_[n]; }
  size_t width() const { return rows_.pairs(); }

 private:
  RowsOfPairs(TableRows rows, std::vector<size_t> columns) : rows_(std::move(rows)), columns_(std::move(columns)) {}

  TableRows rows_;
  std::vector<size_t> columns_;
};

// A NaN in a given table equals any other.
template <class T>
bool Differ(T a, T b) {
  return a != b && !(std::isnan(a) && std::isnan(b));
}

constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

// Returns the first of `count` positions from `from` on at which a float32 entry differs, or kNoPosition.
absl::StatusOr<int64_t> FirstPositionFrom(int64_t from, int64_t count, const RowsOfPairs& a, const RowsOfPairs& b,
                                          size_t pairs, WorkPool& pool, const Cancellation& cancelled) {
  std::atomic<int64_t> first{kNoPosition};
  const size_t slab = std::clamp<size_t>(16384 / std::max(a.width(), b.width()), 1, 1024);
  POSENC_RETURN_IF_ERROR(pool.ParallelFor(count, slab, cancelled, [&](size_t begin, size_t end) {
    const int64_t position = from + static_cast<int64_t>(begin);
    if (position >= first.load(std::memory_order_relaxed)) return;
    const auto rows = static_cast<int64_t>(end - begin);
    const auto rows_a = a.Compute<float>(position, rows), rows_b = b.Compute<float>(position, rows);
    for (int64_t row = 0; row < rows; ++row) {
      for (size_t n = 0; n < pairs; ++n) {
        const size_t in_a = a.Index(row, n), in_b = b.Index(row, n);
        if (!Differ(rows_a.cos[in_a], rows_b.cos[in_b]) && !Differ(rows_a.sin[in_a], rows_b.sin[in_b])) continue;
        int64_t earlier = first.load(std::memory_order_relaxed);
        while (position + row < earlier && !first.compare_exchange_weak(earlier, position + row)) {
        }
        return;
      }
    }
  }));
  return first.load();
}

// Returns the first position below `count` at which a float32 entry differs. Subtracts the entries that were computed
// from `entries_left`. The ranges that are searched grow, so that few entries are computed beyond an early position.
absl::StatusOr<std::optional<int64_t>> FirstPosition(const RowsOfPairs& a, const RowsOfPairs& b, size_t pairs,
                                                     int64_t count, int64_t* entries_left, WorkPool& pool,
                                                     const Cancellation& cancelled) {
  int64_t size = 64;
  for (int64_t begin = 0; begin < count; begin += size, size *= 2) {
    const int64_t positions = std::min(size, count - begin);
    *entries_left -= positions * static_cast<int64_t>(std::max(a.width(), b.width()));
    POSENC_ASSIGN_OR_RETURN(const int64_t first, FirstPositionFrom(begin, positions, a, b, pairs, pool, cancelled));
    if (first != kNoPosition) return first;
  }
  return std::nullopt;
}

RotaryDifference::AtPosition LargestAt(const RowsOfPairs& a, const RowsOfPairs& b, const std::vector<size_t>& pairs,
                                       int64_t position) {
  RotaryDifference::AtPosition largest{position, 0, pairs[0]};
  const auto row_a = a.Compute<double>(position, 1), row_b = b.Compute<double>(position, 1);
  for (size_t n = 0; n < pairs.size(); ++n) {
    const size_t in_a = a.Index(0, n), in_b = b.Index(0, n);
    for (const auto& [x, y] : {std::pair(row_a.cos[in_a], row_b.cos[in_b]), {row_a.sin[in_a], row_b.sin[in_b]}}) {
      // Two equal infinities (of xPos) have no difference, and one NaN (in a given table) the largest.
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const double difference = !Differ(x, y) ? 0 : std::isnan(x - y) ? kInfinity : std::fabs(x - y);
      if (difference > largest.difference) largest = {position, difference, pairs[n]};
    }
  }
  return largest;
}

}  // namespace

bool SameWithin(double tolerance, double a, double b, double* tolerated) {
  if (a == b) return true;
  const double relative = std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
  if (!(relative <= tolerance)) return false;
  *tolerated = std::max(*tolerated, relative);
  return true;
}

absl::StatusOr<RotaryDifference> CompareRotary(const PlannedRotary& a, const PlannedRotary& b, double tolerance,
                                               int64_t* entries_left, WorkPool& pool, const Cancellation& cancelled) {
  RotaryDifference difference;
  const GivenTable *table_a = a.rotary->table(), *table_b = b.rotary->table();
  difference.pairs = DifferingPairs(a, b, tolerance, &difference.tolerated);
  difference.same_scaling = SameScaling(*a.plan, *b.plan, tolerance, &difference.tolerated);
  difference.same_table =
      (table_a == nullptr) == (table_b == nullptr) && (table_a == nullptr || SameTable(*table_a, *table_b));
  int64_t count = kComparedPositions;
  for (const GivenTable* table : {table_a, table_b}) {
    if (table != nullptr) count = std::min(count, table->rows);
  }
  const std::vector<size_t> pairs = PairsToSearch(a, b, difference);
  if (pairs.empty()) {
    difference.searched_positions = count;
    return difference;
  }
  POSENC_ASSIGN_OR_RETURN(const RowsOfPairs rows_a, RowsOfPairs::Create(a, pairs, count));
  POSENC_ASSIGN_OR_RETURN(const RowsOfPairs rows_b, RowsOfPairs::Create(b, pairs, count));
  const auto width = static_cast<int64_t>(std::max(rows_a.width(), rows_b.width()));
  difference.searched_positions = std::min(count, *entries_left / width);
  POSENC_ASSIGN_OR_RETURN(
      difference.first_position,
      FirstPosition(rows_a, rows_b, pairs.size(), difference.searched_positions, entries_left, pool, cancelled));
  if (difference.first_position) difference.searched_positions = *difference.first_position + 1;
  for (const int64_t position : kReportedPositions) {
    if (position < count) difference.at.push_back(LargestAt(rows_a, rows_b, pairs, position));
  }
  return difference;
}

}  // namespace posenc
