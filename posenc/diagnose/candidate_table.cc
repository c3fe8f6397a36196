#include "posenc/diagnose/candidate_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(value));
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(value));
    default: return value;
  }
}

// The value with `bits` bits of mantissa behind the point; below 2^least, as a multiple of 2^(least - bits).
double RoundToBits(double value, int bits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::ldexp(1, std::max(std::ilogb(value), least) - bits);
  return std::nearbyint(value / unit) * unit;
}

// A table's entry in a type that the library does not have.
double RoundEntry(TableFault fault, double value) {
  switch (fault) {
    case TableFault::kTableE4M3: return RoundToBits(value, 3, -6);
    case TableFault::kTableE5M2: return RoundToBits(value, 2, -14);
    case TableFault::kTableInt8: return std::nearbyint(value * 127) / 127;
    default: return value;
  }
}
bool RoundsEntries(TableFault fault) {
  return fault == TableFault::kTableE4M3 || fault == TableFault::kTableE5M2 || fault == TableFault::kTableInt8;
}

std::optional<DType> RoundsFrequencies(TableFault fault) {
  if (fault == TableFault::kInvFreqBF16 || fault == TableFault::kAnglesBF16) return DType::kBF16;
  if (fault == TableFault::kInvFreqFP16 || fault == TableFault::kAnglesFP16) return DType::kFP16;
  return std::nullopt;
}

std::optional<DType> RoundsPositions(TableFault fault) {
  if (fault == TableFault::kPositionsBF16 || fault == TableFault::kAnglesBF16) return DType::kBF16;
  if (fault == TableFault::kPositionsFP16 || fault == TableFault::kAnglesFP16) return DType::kFP16;
  return std::nullopt;
}

// The type of the angles that a fault computes pair by pair; FP32 for a recurrence.
std::optional<DType> AnglesOf(TableFault fault) {
  switch (fault) {
    case TableFault::kAnglesBF16: return DType::kBF16;
    case TableFault::kAnglesFP16: return DType::kFP16;
    case TableFault::kRecurrence: return DType::kFP32;
    default: return std::nullopt;
  }
}

// All tokens as one packed sequence, or as several if each has its own scaling length.
Positions PositionsOf(const Candidate& candidate, const Tokens& tokens, bool needs_seq_len, double divisor) {
  Positions positions;
  PositionIds ids;
  ids.axes = tokens.axes();
  ids.ids.columns = tokens.count();
  const std::optional<DType> rounded = RoundsPositions(candidate.fault);
  for (const auto& axis : candidate.positions ? *candidate.positions : tokens.positions) {
    for (double p : axis) {
      const double moved = candidate.positions ? p : p + candidate.position_shift;
      ids.ids.values.push_back((rounded ? RoundTo(*rounded, moved) : moved) / divisor);
    }
  }
  positions.source = std::move(ids);
  positions.axis_dimension = AxisDimension::kFirst;
  if (!needs_seq_len) return positions;
  positions.scaling_length_rule = ScalingLengthRule::kGiven;
  positions.seq_len = candidate.seq_len ? std::vector<int64_t>{*candidate.seq_len} : tokens.seq_len;
  if (positions.seq_len.size() > 1) positions.cu_seqlens = tokens.bounds;
  return positions;
}

}  // namespace

absl::StatusOr<Effective> EffectiveSettings(const Candidate& candidate, Frequencies arithmetic, const Tokens& tokens,
                                            const Limits& limits) {
  const std::optional<DType> rounded = RoundsFrequencies(candidate.fault);
  if (!candidate.attention_scaling && !rounded && !candidate.exchanged_axes) return Effective{candidate.settings};
  POSENC_ASSIGN_OR_RETURN(const Rotary rotary, Rotary::Create(candidate.settings, arithmetic, limits));
  int64_t seq_len = candidate.seq_len.value_or(0);
  if (rotary.NeedsSeqLen() && !candidate.seq_len) {
    if (tokens.seq_len.size() != 1) return absl::FailedPreconditionError("sequences have frequencies of their own");
    seq_len = tokens.seq_len[0];
  }
  POSENC_ASSIGN_OR_RETURN(const auto plan, rotary.Plan(seq_len));
  GivenFrequencies given{plan->inv_freq, candidate.attention_scaling.value_or(plan->attention_scaling), plan->axis};
  if (rounded) {
    // linear_positions divides the positions, so round the undivided frequencies.
    const auto* p = std::get_if<RopeParameters>(&candidate.settings.frequencies);
    const bool divided = p != nullptr && p->rope_type == "linear_positions" && plan->position_divisor == 1;
    const double by = divided ? *p->factor : 1;
    for (double& f : given.inv_freq) f = RoundTo(*rounded, f * by) / by;
  }
  if (candidate.exchanged_axes) {
    const auto [a, b] = *candidate.exchanged_axes;
    for (int64_t& axis : given.axis) axis = axis == a ? b : axis == b ? a : axis;
  }
  Effective effective{.position_divisor = plan->position_divisor};
  effective.settings.frequencies = std::move(given);
  effective.settings.xpos = candidate.settings.xpos;
  effective.settings.rotary_dim = rotary.rotary_dim();
  effective.settings.input_pairing = rotary.input_pairing();
  effective.settings.output_pairing = rotary.output_pairing();
  effective.settings.half_split_parts = rotary.half_split_parts();
  return effective;
}

absl::StatusOr<CandidateTable> CandidateTable::Create(const Candidate& candidate, Frequencies arithmetic,
                                                      const Tokens& tokens, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(Effective effective, EffectiveSettings(candidate, arithmetic, tokens, limits));
  POSENC_ASSIGN_OR_RETURN(const Rotary rotary, Rotary::Create(std::move(effective.settings), arithmetic, limits));
  if (rotary.axes() > tokens.axes()) return absl::FailedPreconditionError("positions have fewer axes");
  if (rotary.NeedsSeqLen() && !candidate.seq_len && tokens.seq_len.empty()) {
    return absl::FailedPreconditionError("no scaling length was given");
  }
  Positions positions = PositionsOf(candidate, tokens, rotary.NeedsSeqLen(), effective.position_divisor);
  // Frequencies with fewer axes than the positions use the first axes.
  auto& ids = std::get<PositionIds>(positions.source);
  ids.axes = rotary.axes();
  ids.ids.values.resize(ids.axes * tokens.count());
  std::vector<std::vector<double>> applied(rotary.axes());
  for (int64_t axis = 0; axis < rotary.axes(); ++axis) {
    const auto begin = ids.ids.values.begin() + axis * tokens.count();
    applied[axis].assign(begin, begin + tokens.count());
  }
  if (rotary.axes() == 1) positions.axis_dimension = AxisDimension::kUnspecified;
  POSENC_ASSIGN_OR_RETURN(
      TokenPositions resolved,
      TokenPositions::Create(std::move(positions), {1, tokens.count(), true, rotary.axes()}, limits));
  POSENC_ASSIGN_OR_RETURN(TableRows rows, TableRows::Create(rotary, std::move(resolved), candidate.direction, limits));
  CandidateTable table(std::move(rows));
  table.positions_ = std::move(applied);
  table.fault_ = candidate.fault;
  table.sign_ = candidate.direction == Direction::kForward ? 1 : -1;
  if (!AnglesOf(candidate.fault)) return table;
  if (rotary.axes() > 1 || table.rows_.entries() > 1 || table.rows_.differ_by_operand() ||
      candidate.direction == Direction::kInverse) {
    return absl::UnimplementedError("only of one axis");
  }
  const std::vector<double>& f = table.rows_.plan(0).inv_freq;
  if (candidate.fault == TableFault::kRecurrence) {
    if (f.size() < 2 || f[0] == 0) return absl::FailedPreconditionError("there is no ratio");
    table.recurrence_ = static_cast<float>(std::pow(f.back() / f[0], 1 / static_cast<double>(f.size() - 1)));
    // A recurrence has one ratio for all pairs; scalings that differ by pair have none.
    for (size_t i = 1; i < f.size(); ++i) {
      if (std::fabs(f[i] / f[i - 1] / table.recurrence_ - 1) > 1e-5) return absl::FailedPreconditionError("no ratio");
    }
  }
  return table;
}

void CandidateTable::Compute(int64_t token, int64_t count, DType dtype, Operand operand, std::byte* cos,
                             std::byte* sin) const {
  if (AnglesOf(fault_)) return ComputeOwn(token, count, dtype, cos, sin);
  if (fault_ == TableFault::kExchanged) std::swap(cos, sin);
  const DType narrow = RoundsEntries(fault_)              ? DType::kFP64
                       : fault_ == TableFault::kTableBF16 ? DType::kBF16
                       : fault_ == TableFault::kTableFP16 ? DType::kFP16
                                                          : dtype;
  const TokenPositions& positions = rows_.positions();
  const size_t row = pairs() * SizeOf(narrow);
  std::vector<std::byte> scratch(narrow == dtype ? 0 : 2 * count * row);
  std::byte* const narrow_cos = narrow == dtype ? cos : scratch.data();
  std::byte* const narrow_sin = narrow == dtype ? sin : scratch.data() + count * row;
  for (int64_t n = token; n < token + count;) {
    const int64_t stop = std::min(token + count, positions.begin(positions.SequenceOf(n) + 1));
    rows_.Compute(n, stop - n, narrow, operand, narrow_cos + (n - token) * row, narrow_sin + (n - token) * row);
    n = stop;
  }
  if (RoundsEntries(fault_)) {
    for (std::byte* entries : {narrow_cos, narrow_sin}) {
      auto* const values = reinterpret_cast<double*>(entries);
      for (size_t n = 0; n < count * pairs(); ++n) values[n] = RoundEntry(fault_, values[n]);
    }
  }
  if (narrow == dtype) return;
  Convert(narrow, dtype, narrow_cos, cos, count * pairs());
  Convert(narrow, dtype, narrow_sin, sin, count * pairs());
}

int64_t CandidateTable::AxisOf(size_t pair) const {
  return rows_.is_given() || rows_.plan(0).axis.empty() ? 0 : rows_.plan(0).axis[pair];
}

double CandidateTable::AngleOn(int64_t axis, int64_t token, size_t pair) const {
  if (rows_.is_given()) return 0;
  const RotaryPlan& plan = rows_.plan(rows_.entries() > 1 ? rows_.positions().SequenceOf(token) : 0);
  return sign_ * plan.inv_freq[pair] * positions_[axis][token];
}

double CandidateTable::Angle(int64_t token, size_t pair) const { return std::fabs(AngleOn(AxisOf(pair), token, pair)); }

void CandidateTable::ComputeOwn(int64_t token, int64_t count, DType dtype, std::byte* cos, std::byte* sin) const {
  const RotaryPlan& plan = rows_.plan(0);
  std::vector<double> positions(count), values(2 * count * pairs());
  rows_.positions().Fill(token, count, positions.data());
  double *c = values.data(), *s = values.data() + count * pairs();
  for (double p : positions) {
    auto angle = static_cast<float>(p * plan.inv_freq[0]);
    for (size_t i = 0; i < pairs(); ++i, ++c, ++s) {
      if (fault_ != TableFault::kRecurrence) {
        angle = static_cast<float>(RoundTo(*AnglesOf(fault_), p * plan.inv_freq[i]));
      }
      *c = static_cast<float>(std::cos(static_cast<double>(angle))) * static_cast<float>(plan.attention_scaling);
      *s =
          sign_ * static_cast<float>(std::sin(static_cast<double>(angle))) * static_cast<float>(plan.attention_scaling);
      angle *= static_cast<float>(recurrence_);
    }
  }
  Convert(DType::kFP64, dtype, values.data(), cos, count * pairs());
  Convert(DType::kFP64, dtype, values.data() + count * pairs(), sin, count * pairs());
}

}  // namespace posenc::diagnose
