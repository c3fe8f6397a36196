#include "posenc/table_rows.h"

#include <fmt/format.h>

#include <map>

#include "posenc/status.h"

namespace posenc {
namespace {

// Flips the sign bit of `count` elements, little-endian as all supported machines are.
void Negate(DType dtype, void* data, size_t count) {
  const size_t size = SizeOf(dtype);
  auto* sign = static_cast<unsigned char*>(data) + size - 1;
  for (size_t i = 0; i < count; ++i, sign += size) *sign ^= 0x80;
}

}  // namespace

absl::StatusOr<TableRows> TableRows::Create(const Rotary& rotary, TokenPositions positions, Direction direction,
                                            const Limits& limits) {
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
  std::map<int64_t, size_t> planned;
  for (int64_t length : lengths) {
    const auto [known, is_new] = planned.try_emplace(length, rows.plans_.size());
    rows.plan_of_.push_back(known->second);
    if (!is_new) continue;
    if (static_cast<int64_t>(planned.size() * rows.pairs_) > limits.max_plan_values) {
      return TooLarge(
          "sequences", fmt::format("more than {} different lengths", planned.size() - 1),
          fmt::format("times {} frequencies: at most {} (max_plan_values)", rows.pairs_, limits.max_plan_values));
    }
    POSENC_ASSIGN_OR_RETURN(RotaryPlan plan, rotary.Plan(length));
    if (direction == Direction::kInverse && plan.attention_scaling == 0) {
      return InvalidArgument("OUT_OF_RANGE", "direction", "DIRECTION_INVERSE",
                             "the attention scaling is 0: such a rotation cannot be undone");
    }
    rows.plans_.push_back(std::move(plan));
  }
  return rows;
}

void TableRows::Compute(int64_t token, int64_t count, DType dtype, void* cos, void* sin) const {
  std::vector<double> at(count);
  positions_.Fill(token, count, at.data());
  const RotaryPlan& sequence_plan = plan(positions_.SequenceOf(token));
  const SinCosRows work{
      .frequencies = arithmetic_,
      .dtype = dtype,
      .positions = at.data(),
      .inv_freq = sequence_plan.inv_freq.data(),
      .rows = static_cast<size_t>(count),
      .pairs = pairs_,
      .scale = sequence_plan.attention_scaling,
      .divide = direction_ == Direction::kInverse,
      .cos = cos,
      .sin = sin,
  };
  Run(work, 0, work.rows);
  if (direction_ != Direction::kForward) Negate(dtype, sin, work.rows * pairs_);
}

}  // namespace posenc
