#include "posenc/rotary/table_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "posenc/base/fingerprint.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/kernels/sincos_turns.h"
#include "posenc/methods/rope/given_table.h"
#include "posenc/methods/rope/query_scale.h"
#include "posenc/rotary/xpos_rows.h"

namespace posenc {
namespace {

// Flips the sign bit of `count` little-endian elements; all supported machines are little-endian.
void Negate(DType dtype, void* data, size_t count) {
  const size_t size = SizeOf(dtype);
  auto* sign = static_cast<unsigned char*>(data) + size - 1;
  for (size_t i = 0; i < count; ++i, sign += size) *sign ^= 0x80;
}

// Swaps the sines of the pairs' first and second elements: with that and the other sign, rows of two entries in a pair
// multiply by the transposed matrix.
void SwapInPairs(size_t pair_bytes, std::byte* sin, size_t bytes) {
  for (std::byte* end = sin + bytes; sin < end; sin += 2 * pair_bytes) {
    std::swap_ranges(sin, sin + pair_bytes, sin + pair_bytes);
  }
}

// Returns the angles of a token in one of the models' arithmetics: products are rounded to T, and so are their sums.
template <class T>
void AddProducts(const RotaryPlan& plan, const double* point, std::vector<double>* angles) {
  const auto terms = static_cast<size_t>(plan.terms);
  for (size_t n = 0; n < angles->size(); ++n) {
    const double* f = plan.inv_freq.data() + n * terms;
    T sum = static_cast<T>(f[0]) * static_cast<T>(point[0]);
    for (size_t j = 1; j < terms; ++j) sum += static_cast<T>(f[j]) * static_cast<T>(point[j]);
    (*angles)[n] = sum;
  }
}

// Placement of one axis's rows in wider rows: the axis's columns, and the source row of each output row.
struct AxisRows {
  const std::vector<size_t>& columns;
  const std::vector<size_t>& row_of;
  size_t width;
};

template <size_t kSize>
void ScatterElements(const std::byte* from, const AxisRows& axis, std::byte* to) {
  for (const size_t row : axis.row_of) {
    const std::byte* element = from + row * axis.columns.size() * kSize;
    for (const size_t column : axis.columns) {
      std::memcpy(to + column * kSize, element, kSize);
      element += kSize;
    }
    to += axis.width * kSize;
  }
}
void Scatter(size_t size, const std::byte* from, const AxisRows& axis, std::byte* to) {
  switch (size) {
    case 2: return ScatterElements<2>(from, axis, to);
    case 4: return ScatterElements<4>(from, axis, to);
    default: return ScatterElements<8>(from, axis, to);
  }
}

// Sorts the values and removes duplicates. Returns each original value's index in the result.
std::vector<size_t> Distinct(std::vector<double>* values) {
  const std::vector<double> all = *values;
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
  std::vector<size_t> places;
  places.reserve(all.size());
  for (const double value : all) {
    places.push_back(std::lower_bound(values->begin(), values->end(), value) - values->begin());
  }
  return places;
}

// True if the fast path suffices for all entries: sines of very large and very small angles need MPFR. Also false if
// the check itself would take long.
bool AreUsual(const TokenPositions& positions, const std::vector<std::shared_ptr<const RotaryPlan>>& plans) {
  constexpr double kLargest = 0x1p40, kSmallest = 0x1p-400;
  constexpr int64_t kMostRuns = 4096, kMostPositions = int64_t{1} << 20;
  const int64_t axes = positions.axes_differ() ? positions.axes() : 1;
  const int64_t sequences =
      positions.same_for_all() ? std::min<int64_t>(positions.sequences(), 1) : positions.sequences();
  if (sequences > kMostRuns / axes || positions.tokens() > kMostPositions / axes) return false;
  double most = 0, least = kLargest;
  for (const auto& plan : plans) {
    for (const double f : plan->inv_freq) {
      if (f == 0) continue;
      most = std::max(most, std::abs(f));
      least = std::min(least, std::abs(f));
    }
  }
  std::vector<double> column;
  for (int64_t n = 0; n < sequences; ++n) {
    const int64_t begin = positions.begin(n), count = positions.begin(n + 1) - begin;
    if (count == 0) continue;  // an empty sequence has no token that Fill() could begin with
    column.resize(count);
    for (int64_t axis = 0; axis < axes; ++axis) {
      positions.Fill(begin, count, column.data(), axis);
      for (const double p : column) {
        if (p != 0 && (std::abs(p) * most > kLargest || std::abs(p) * least < kSmallest)) return false;
      }
    }
  }
  return true;
}

absl::Status CheckPlans(size_t plans, size_t pairs, const Limits& limits) {
  if (static_cast<int64_t>(plans * pairs) <= limits.max_plan_values) return absl::OkStatus();
  return TooLarge(
      "sequences", fmt::format("more than {} different lengths", plans - 1),
      fmt::format("must be at most {1} values (max_plan_values) / {0} frequencies", pairs, limits.max_plan_values));
}

}  // namespace

absl::StatusOr<TableRows> TableRows::Create(const Rotary& rotary, TokenPositions positions, Direction direction,
                                            const Limits& limits) {
  const bool cache_only = rotary.plan_source() == PlanSource::kCacheOnly;
  // xPos's scales are powers, which may need MPFR.
  if (cache_only && rotary.settings().xpos) return WouldBlock();
  std::vector<int64_t> lengths = {0};
  if (rotary.NeedsSeqLen()) {
    auto given = positions.ScalingLengths(limits);
    if (!given.ok()) return Within("positions", given.status());
    lengths = *std::move(given);
  } else {
    POSENC_RETURN_IF_ERROR(Within("positions", positions.RefuseScalingLength()));
  }

  TableRows rows(std::move(positions));
  rows.arithmetic_ = rotary.arithmetic();
  rows.direction_ = direction;
  rows.pairs_ = rotary.rotary_dim() / 2;
  rows.width_ = rotary.width();
  rows.differs_in_pair_ = rotary.differs_in_pair();
  if (direction == Direction::kInverse && rows.differs_in_pair_) {
    return InvalidArgument("UNSUPPORTED", "direction", "DIRECTION_INVERSE",
                           "must be another direction: the two elements of a pair have different angles, which is no "
                           "rotation and need not have an inverse");
  }
  if (const GivenTable* table = rotary.table()) {
    if (direction == Direction::kInverse) {
      return InvalidArgument("CONFLICT", "direction", "DIRECTION_INVERSE",
                             "must be another direction: the attention scaling of a given_table is unknown, use "
                             "DIRECTION_TRANSPOSE if it is 1");
    }
    POSENC_RETURN_IF_ERROR(Within("positions", rows.positions_.CheckIndices(table->rows)));
    rows.table_ = *table;
    rows.sources_ = rotary.sources();
  }
  std::map<int64_t, size_t> planned;
  for (int64_t length : lengths) {
    const auto [known, is_new] = planned.try_emplace(length, rows.plans_.size());
    rows.plan_of_.push_back(known->second);
    if (!is_new) continue;
    POSENC_RETURN_IF_ERROR(CheckPlans(planned.size(), rows.pairs_, limits));
    POSENC_ASSIGN_OR_RETURN(auto plan, rotary.Plan(length));
    if (direction == Direction::kInverse && plan->attention_scaling == 0) {
      return InvalidArgument("OUT_OF_RANGE", "direction", "DIRECTION_INVERSE",
                             "must be another direction: the attention scaling is 0, so the rotation has no inverse");
    }
    rows.plans_.push_back(std::move(plan));
  }
  if (const auto& scale = rotary.settings().query_scale) {
    POSENC_RETURN_IF_ERROR(Within("positions", rows.positions_.CheckIndexesNotNegative()));
    // Factors do not decrease: if that of the largest index is 1, all are.
    rows.scales_query_ = posenc::QueryFactors(rows.arithmetic_, *scale, {rows.positions_.LargestIndex()})[0] != 1;
    if (cache_only && rows.scales_query_) return WouldBlock();  // logarithms may need MPFR
  }
  if (cache_only && !rows.table_ && (rows.plans_[0]->terms > 1 || !AreUsual(rows.positions_, rows.plans_))) {
    return WouldBlock();
  }
  rows.SetColumns();
  return rows;
}

TableRows TableRows::OfPlan(RotaryPlan plan, TokenPositions positions) {
  TableRows rows(std::move(positions));
  rows.pairs_ = rows.width_ = plan.inv_freq.size();
  rows.plans_ = {std::make_shared<const RotaryPlan>(std::move(plan))};
  rows.plan_of_ = {0};
  rows.SetColumns();
  return rows;
}

bool TableRows::DifferencesAreExact(const TokenPositions& from) const {
  const bool once = positions_.same_for_all() && from.same_for_all();
  const int64_t sequences = once ? std::min<int64_t>(positions_.sequences(), 1) : positions_.sequences();
  const int64_t axes = positions_.axes_differ() || from.axes_differ() ? positions_.axes() : 1;
  constexpr int64_t kTogether = 1024;
  double to[kTogether], at[kTogether];
  for (int64_t n = 0; n < sequences; ++n) {
    const int64_t end = positions_.begin(n + 1);
    for (int64_t token = positions_.begin(n); token < end; token += kTogether) {
      InterruptionPoint();
      const int64_t count = std::min(kTogether, end - token);
      for (int64_t axis = 0; axis < axes; ++axis) {
        positions_.Fill(token, count, to, axis);
        from.Fill(token, count, at, axis);
        for (int64_t i = 0; i < count; ++i) {
          // Knuth's TwoSum: the rounding error of the difference.
          const double difference = to[i] - at[i], of_at = difference - to[i];
          if ((to[i] - (difference - of_at)) - (at[i] + of_at) != 0) return false;
        }
      }
    }
  }
  return true;
}

absl::StatusOr<TableRows> TableRows::Moving(TableRows to, TableRows from, const Limits& limits) {
  std::vector<RotaryPlan> plans;
  std::vector<size_t> plan_of;
  bool same_frequencies = true;
  std::map<std::pair<size_t, size_t>, size_t> planned;
  for (size_t n = 0; n < std::max(to.plan_of_.size(), from.plan_of_.size()); ++n) {
    const size_t here = to.plan_of_[to.plan_of_.size() == 1 ? 0 : n];
    const size_t there = from.plan_of_[from.plan_of_.size() == 1 ? 0 : n];
    const auto [known, is_new] = planned.try_emplace({here, there}, plans.size());
    plan_of.push_back(known->second);
    if (!is_new) continue;
    POSENC_RETURN_IF_ERROR(CheckPlans(planned.size(), to.pairs_, limits));
    RotaryPlan& plan = plans.emplace_back(*to.plans_[here]);
    const RotaryPlan& cached = *from.plans_[there];
    plan.attention_scaling /= cached.attention_scaling;
    if (!std::isfinite(plan.attention_scaling) || plan.attention_scaling == 0) {
      return InvalidArgument(
          "UNSUPPORTED", cached.attention_scaling == 0 ? "cached_keys.rotary" : "rotary",
          fmt::format("attention scalings {} after {}", to.plans_[here]->attention_scaling, cached.attention_scaling),
          "must have a quotient of attention scalings that is finite and not 0");
    }
    same_frequencies = same_frequencies && plan.inv_freq == cached.inv_freq && plan.axis == cached.axis;
    plan.from_inv_freq = cached.inv_freq;
    if (plan.xpos) plan.xpos->centre = 0;  // powers of the difference of both positions
  }
  const bool by_difference = same_frequencies && to.DifferencesAreExact(from.positions_);
  const RotaryPlan& any = *to.plans_[0];
  if (!by_difference && (any.terms > 1 || to.positions_.axes() > 1 || any.xpos)) {
    const char* why = any.xpos ? "with xpos" : "with several axes";
    if (!same_frequencies) {
      return InvalidArgument("UNSUPPORTED", "cached_keys.rotary", "other frequencies",
                             fmt::format("must have the frequencies of rotary, and their axes, {}", why));
    }
    return InvalidArgument("UNSUPPORTED", "cached_keys.positions", "differences that are no doubles",
                           fmt::format("must differ from positions by numbers that float64 has, {}", why));
  }
  if (by_difference) {
    for (RotaryPlan& plan : plans) plan.from_inv_freq.clear();
  }
  to.moved_ = Moved{std::move(from.positions_), std::move(plans), std::move(plan_of), by_difference};
  return to;
}

void TableRows::SetColumns() {
  columns_of_.resize(positions_.axes());
  const std::vector<int64_t>& axis = plans_[0]->axis;
  for (size_t i = 0; i < axis.size(); ++i) columns_of_[axis[i]].push_back(i);
}

std::vector<double> TableRows::PositionsOf(int64_t token, int64_t count, int64_t axis) const {
  std::vector<double> at(count);
  positions_.Fill(token, count, at.data(), axis);
  if (moved_ && moved_->by_difference) {
    std::vector<double> from(count);
    moved_->positions.Fill(token, count, from.data(), axis);
    for (int64_t n = 0; n < count; ++n) at[n] -= from[n];
  }
  const double divisor = plan(positions_.SequenceOf(token)).position_divisor;
  if (divisor == 1) return at;
  for (double& position : at) {
    position = arithmetic_ == Frequencies::kFloat32 ? static_cast<float>(position) / static_cast<float>(divisor)
                                                    : position / divisor;
  }
  return at;
}

std::vector<double> TableRows::FromPositionsOf(int64_t token, int64_t count) const {
  std::vector<double> from(count);
  moved_->positions.Fill(token, count, from.data());
  return from;
}

std::vector<double> TableRows::IndexesOf(int64_t token, int64_t count) const {
  std::vector<double> at(count);
  const bool cached = plans_[0]->query_scale->position_source == PositionSource::kCacheIndex;
  cached ? positions_.FillIndexes(token, count, at.data()) : positions_.Fill(token, count, at.data());
  return at;
}

std::vector<float> TableRows::QueryFactors(int64_t token, int64_t count) const {
  const std::vector<double> factors = posenc::QueryFactors(
      arithmetic_, *plans_[0]->query_scale, IndexesOf(token, count), 1, direction_ == Direction::kInverse);
  return {factors.begin(), factors.end()};
}

void TableRows::LookUp(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const {
  const size_t size = SizeOf(dtype), row = width_ * size;
  const size_t scratch_width = sources_.empty() ? 0 : width_;
  std::vector<double> scratch(2 * scratch_width);  // doubles for their size and alignment
  auto* row_cos = reinterpret_cast<std::byte*>(scratch.data());
  auto* row_sin = reinterpret_cast<std::byte*>(scratch.data() + scratch_width);
  for (const double position : PositionsOf(token, count, 0)) {
    if (sources_.empty()) {
      CopyRow(*table_, static_cast<int64_t>(position), dtype, cos, sin);
    } else {
      CopyRow(*table_, static_cast<int64_t>(position), dtype, row_cos, row_sin);
      for (size_t n = 0; n < width_; ++n) {
        std::memcpy(cos + n * size, row_cos + sources_[n] * size, size);
        std::memcpy(sin + n * size, row_sin + sources_[n] * size, size);
      }
    }
    cos += row;
    sin += row;
  }
}

// Computes rows whose angles are sums of products over all axes.
void TableRows::ComputeSums(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const {
  const RotaryPlan& sequence_plan = ComputedPlan(positions_.SequenceOf(token));
  const auto terms = static_cast<size_t>(sequence_plan.terms);
  std::vector<double> points(count * terms);
  for (size_t axis = 0; axis < terms; ++axis) {
    const std::vector<double> at = PositionsOf(token, count, static_cast<int64_t>(axis));
    for (int64_t n = 0; n < count; ++n) points[n * terms + axis] = at[n];
  }
  std::vector<double> angles(arithmetic_ == Frequencies::kExact ? 0 : width_);
  const double one = 1;
  for (int64_t n = 0; n < count; ++n) {
    const size_t row = n * width_ * SizeOf(dtype);
    const double* point = points.data() + n * terms;
    if (arithmetic_ == Frequencies::kExact) {
      ComputeSinCosTurns({.dtype = dtype,
                          .factors = sequence_plan.inv_freq.data(),
                          .point = point,
                          .pairs = width_,
                          .terms = terms,
                          .cos = cos + row,
                          .sin = sin + row,
                          .radians = true});
      continue;
    }
    const bool single = arithmetic_ == Frequencies::kFloat32;
    single ? AddProducts<float>(sequence_plan, point, &angles) : AddProducts<double>(sequence_plan, point, &angles);
    ComputeSinCosRows({.frequencies = arithmetic_,
                       .dtype = dtype,
                       .positions = &one,
                       .inv_freq = angles.data(),
                       .rows = 1,
                       .pairs = width_,
                       .cos = cos + row,
                       .sin = sin + row},
                      0, 1);
  }
}

// Computes rows whose angles are differences of products.
void TableRows::ComputeDifferences(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const {
  const RotaryPlan& sequence_plan = ComputedPlan(positions_.SequenceOf(token));
  const std::vector<double> at = PositionsOf(token, count, 0), from = FromPositionsOf(token, count);
  ComputeSinCosRows({.frequencies = arithmetic_,
                     .dtype = dtype,
                     .positions = at.data(),
                     .inv_freq = sequence_plan.inv_freq.data(),
                     .rows = at.size(),
                     .pairs = width_,
                     .scale = sequence_plan.attention_scaling,
                     .cos = cos,
                     .sin = sin,
                     .from_positions = from.data(),
                     .from_inv_freq = sequence_plan.from_inv_freq.data()},
                    0, at.size());
}

// Computes the columns of one axis; the kernel takes one position per row. Positions repeat in a grid, so each distinct
// position is computed once.
void TableRows::ComputeAxis(int64_t axis, int64_t token, int64_t count, DType dtype, std::byte* cos,
                            std::byte* sin) const {
  const RotaryPlan& sequence_plan = ComputedPlan(positions_.SequenceOf(token));
  const std::vector<size_t>& columns = columns_of_[axis];
  if (columns.empty()) return;
  std::vector<double> inv_freq;
  for (const size_t column : columns) inv_freq.push_back(sequence_plan.inv_freq[column]);
  std::vector<double> at = PositionsOf(token, count, axis);
  const std::vector<size_t> row_of = Distinct(&at);
  std::vector<double> values(2 * at.size() * columns.size());  // doubles for their size and alignment
  auto* axis_cos = reinterpret_cast<std::byte*>(values.data());
  auto* axis_sin = reinterpret_cast<std::byte*>(values.data() + at.size() * columns.size());
  ComputeSinCosRows(SinCosRows{.frequencies = arithmetic_,
                               .dtype = dtype,
                               .positions = at.data(),
                               .inv_freq = inv_freq.data(),
                               .rows = at.size(),
                               .pairs = columns.size(),
                               .scale = sequence_plan.attention_scaling,
                               .divide = direction_ == Direction::kInverse,
                               .cos = axis_cos,
                               .sin = axis_sin},
                    0, at.size());
  const AxisRows rows{columns, row_of, width_};
  Scatter(SizeOf(dtype), axis_cos, rows, cos);
  Scatter(SizeOf(dtype), axis_sin, rows, sin);
}

std::string TableRows::Key(int64_t token, int64_t count, DType dtype, Operand operand) const {
  std::string text;
  Fingerprint key(&text);
  key.Add(static_cast<int64_t>(arithmetic_)).Add(static_cast<int64_t>(direction_)).Add(static_cast<int64_t>(dtype));
  key.Add(differ_by_operand() ? static_cast<int64_t>(operand) : -1).Add(axes());
  for (int64_t axis = 0; axis < axes(); ++axis) key.Add(PositionsOf(token, count, axis));
  if (is_difference()) key.Add(FromPositionsOf(token, count));
  key.Add(scales_query_ && operand == Operand::kQuery ? IndexesOf(token, count) : std::vector<double>());
  if (width_ != pairs_) key.Add(static_cast<int64_t>(pairs_)).Add(static_cast<int64_t>(differs_in_pair_));
  ComputedPlan(positions_.SequenceOf(token)).AddTo(key);  // last: its number of parts varies
  return text;
}

std::optional<TableRecipe> TableRows::Recipe(int64_t token, int64_t count, DType dtype) const {
  if (!has_recipe()) return std::nullopt;
  const RotaryPlan& sequence_plan = ComputedPlan(positions_.SequenceOf(token));
  TableRecipe recipe{.frequencies = arithmetic_,
                     .dtype = dtype,
                     .rows = static_cast<size_t>(count),
                     .inv_freq = sequence_plan.inv_freq,
                     .scale = sequence_plan.attention_scaling,
                     .divide = direction_ == Direction::kInverse,
                     .negate_sin = direction_ != Direction::kForward};
  recipe.positions.reserve(axes() * count);
  for (int64_t axis = 0; axis < axes(); ++axis) {
    for (int64_t first = token; first < token + count;) {
      const int64_t stop = std::min(token + count, positions_.begin(positions_.SequenceOf(first) + 1));
      const std::vector<double> at = PositionsOf(first, stop - first, axis);
      recipe.positions.insert(recipe.positions.end(), at.begin(), at.end());
      first = stop;
    }
  }
  if (axes() > 1) recipe.axis.assign(sequence_plan.axis.begin(), sequence_plan.axis.end());
  return recipe;
}

int64_t TableRows::RecipeBytes(int64_t rows) const {
  return (axes() + 1) * rows * static_cast<int64_t>(sizeof(double));  // one axis twice, while it is appended
}

void TableRows::Compute(int64_t token, int64_t count, DType dtype, Operand operand, void* cos, void* sin,
                        bool large) const {
  const RotaryPlan& sequence_plan = ComputedPlan(positions_.SequenceOf(token));
  auto *cos_bytes = static_cast<std::byte*>(cos), *sin_bytes = static_cast<std::byte*>(sin);
  if (table_) {
    LookUp(token, count, dtype, cos_bytes, sin_bytes);
  } else if (sequence_plan.terms > 1) {
    ComputeSums(token, count, dtype, cos_bytes, sin_bytes);
  } else if (is_difference()) {
    ComputeDifferences(token, count, dtype, cos_bytes, sin_bytes);
  } else if (axes_differ()) {
    for (int64_t axis = 0; axis < positions_.axes(); ++axis) {
      ComputeAxis(axis, token, count, dtype, cos_bytes, sin_bytes);
    }
  } else {
    const std::vector<double> at = PositionsOf(token, count, 0);
    const size_t row = width_ * SizeOf(dtype);
    const auto compute = [&](size_t begin, size_t end, double scale) {
      const SinCosRows work{
          .frequencies = arithmetic_,
          .dtype = dtype,
          .positions = at.data() + begin,
          .inv_freq = sequence_plan.inv_freq.data(),
          .rows = end - begin,
          .pairs = width_,
          .scale = scale,
          .divide = direction_ == Direction::kInverse,
          .cos = cos_bytes + begin * row,
          .sin = sin_bytes + begin * row,
          .large = large,
      };
      if (sequence_plan.xpos) {
        RunWithXpos(work, *sequence_plan.xpos, operand == Operand::kKey);
      } else {
        ComputeSinCosRows(work, 0, work.rows);
      }
    };
    if (scales_query_ && contain_factors() && operand == Operand::kQuery) {
      const std::vector<double> scales = posenc::QueryFactors(arithmetic_, *sequence_plan.query_scale,
                                                              IndexesOf(token, count), sequence_plan.attention_scaling);
      for (auto first = scales.begin(); first != scales.end();) {
        const auto last = std::find_if(first + 1, scales.end(), [&](double scale) { return scale != *first; });
        compute(first - scales.begin(), last - scales.begin(), *first);
        first = last;
      }
    } else {
      compute(0, count, sequence_plan.attention_scaling);
    }
  }
  if (direction_ == Direction::kForward) return;
  Negate(dtype, sin, count * width_);
  if (differs_in_pair_) SwapInPairs(pairs_ * SizeOf(dtype), sin_bytes, count * width_ * SizeOf(dtype));
}

}  // namespace posenc
