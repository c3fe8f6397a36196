#include "posenc/diagnose/position_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/candidate_table.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/measure_positions.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/diagnose/position_words.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

using Complex = std::complex<double>;

constexpr double kFarthest = 1 << 17;  // positions that are considered, and four times the stated ones

// How each pair of some tokens was turned, pooled over heads.
struct Turns {
  size_t operand;
  std::vector<int64_t> heads;
  std::vector<int64_t> tokens;
  int64_t pairs = 0;
  std::vector<Complex> turn;   // [tokens][pairs]; the magnitude is the factor of the norm
  std::vector<double> weight;  // energy behind it
  bool agree = true;           // one rotation of all heads explains them
};

class PositionFinder {
 public:
  PositionFinder(const RotationCall& call, const Explanation& reference, const Option& option, const RowSet& rest)
      : call_(call), reference_(reference), option_(option), rest_(rest) {
    base_ = reference.candidate;
    const RotarySettings layout = base_.settings;
    base_.settings = option.settings;
    base_.settings.rotary_dim = layout.rotary_dim;
    base_.settings.input_pairing = layout.input_pairing;
    base_.settings.output_pairing = layout.output_pairing;
    base_.settings.half_split_parts = layout.half_split_parts;
    base_.seq_len = option.seq_len;
    base_.exchanged_axes = option.exchanged_axes;
    base_.fault = option.fault;
    base_.departures = option.departures;
    base_.free_values = option.free_values;
    base_.digits = option.digits;
    for (const auto& axis : call.evidence.tokens.positions) {
      for (const double p : axis) largest_ = std::max(largest_, std::fabs(p));
    }
  }

  absl::StatusOr<std::vector<Placement>> Find() {
    if (!MakePlans()) return std::vector<Placement>();
    for (size_t n = 0; n < call_.evidence.operands.size(); ++n) {
      const std::vector<int64_t> heads = HeadsIn(call_.evidence, n, rest_);
      if (heads.empty()) continue;
      const Turns together = Collect(n, heads);
      if (together.agree) {
        POSENC_RETURN_IF_ERROR(Place(together));
        continue;
      }
      constexpr size_t kMostHeads = 64;
      for (size_t h = 0; heads.size() > 1 && h < std::min(heads.size(), kMostHeads); ++h) {
        const Turns alone = Collect(n, {heads[h]});
        if (alone.agree) POSENC_RETURN_IF_ERROR(Place(alone));
      }
    }
    return std::move(found_);
  }

 private:
  // The frequencies of each sequence; false if there are none.
  bool MakePlans() {
    if (base_.settings.xpos || std::holds_alternative<GivenTable>(base_.settings.frequencies)) return false;
    const Tokens& tokens = call_.evidence.tokens;
    const auto effective = EffectiveSettings(base_, Frequencies::kExact, tokens, call_.limits);
    if (!effective.ok()) return false;
    const auto rotary = Rotary::Create(effective->settings, Frequencies::kExact, call_.limits);
    if (!rotary.ok() || rotary->axes() > tokens.axes()) return false;
    axes_ = rotary->axes();
    std::vector<int64_t> lengths = {0};
    if (rotary->NeedsSeqLen()) lengths = base_.seq_len ? std::vector<int64_t>{*base_.seq_len} : tokens.seq_len;
    for (const int64_t length : lengths) {
      const auto plan = rotary->Plan(length);
      if (!plan.ok()) return false;
      plans_.push_back(*plan);
    }
    return !plans_.empty() && 2 * plans_[0]->inv_freq.size() == static_cast<size_t>(*base_.settings.rotary_dim);
  }
  const RotaryPlan& PlanOf(int64_t token) const {
    return plans_.size() == 1 ? *plans_[0] : *plans_[call_.evidence.tokens.SequenceOf(token)];
  }

  Turns Collect(size_t operand, const std::vector<int64_t>& heads) const {
    const Rows& rows = call_.evidence.operands[operand];
    const PairLayout layout = LayoutOf(base_, operand);
    Turns turns{.operand = operand, .heads = heads};
    turns.pairs = layout.rotary_dim / 2;
    const int64_t all = rows.heads * rows.width;
    std::vector<std::byte> bytes(all * sizeof(double));
    std::vector<double> x(all), y(all);
    double energy = 0, explained = 0;
    for (int64_t t = 0; t < rows.tokens(); ++t) {
      const auto in_rest = [&](int64_t h) { return rest_[operand][t * rows.heads + h] != 0; };
      if (std::none_of(heads.begin(), heads.end(), in_rest)) continue;
      InterruptionPoint();
      rows.Load(true, {t, 1, 0, rows.heads}, bytes.data());
      Convert(rows.before_dtype, DType::kFP64, bytes.data(), x.data(), all);
      rows.Load(false, {t, 1, 0, rows.heads}, bytes.data());
      Convert(rows.after_dtype, DType::kFP64, bytes.data(), y.data(), all);
      turns.tokens.push_back(t);
      for (int64_t k = 0; k < turns.pairs; ++k) {
        Complex product = 0;
        double weight = 0;
        for (const int64_t h : heads) {
          if (!in_rest(h)) continue;
          const double *before = x.data() + h * rows.width, *after = y.data() + h * rows.width;
          const Complex a(before[layout.First(layout.input, k)], before[layout.Second(layout.input, k)]);
          const Complex b(after[layout.First(layout.output, k)], after[layout.Second(layout.output, k)]);
          if (!std::isfinite(std::norm(a)) || !std::isfinite(std::norm(b))) continue;
          product += b * std::conj(a);
          weight += std::norm(a);
          energy += std::norm(b);
        }
        if (weight > 0) explained += std::norm(product) / weight;
        turns.turn.push_back(weight > 0 ? product / weight : 0);
        turns.weight.push_back(weight);
      }
    }
    turns.agree = energy > 0 && 1 - explained / energy <= kNotARotation;
    return turns;
  }

  // The factor of the norms: the median.
  static double FactorOf(const Turns& turns) {
    std::vector<double> factors;
    for (size_t at = 0; at < turns.turn.size(); ++at) {
      if (turns.weight[at] > 0) factors.push_back(std::abs(turns.turn[at]));
    }
    if (factors.empty()) return 0;
    const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
    std::nth_element(factors.begin(), middle, factors.end());
    return *middle;
  }

  // The position of the m-th token on each axis; empty if one does not fit.
  std::vector<MeasuredPosition> Measured(const Turns& turns, size_t m, double factor) const {
    const Rows& rows = call_.evidence.operands[turns.operand];
    const int64_t token = turns.tokens[m];
    const RotaryPlan& plan = PlanOf(token);
    const double sign = base_.direction == Direction::kForward ? 1 : -1, rounding = RoundingOf(rows);
    const auto stated = [&](int64_t axis) { return call_.evidence.tokens.positions[axis][token]; };
    std::vector<std::vector<PairAngle>> by_axis(axes_);
    for (int64_t k = 0; k < turns.pairs; ++k) {
      const size_t at = m * turns.pairs + k;
      if (turns.weight[at] == 0) continue;
      const double size = std::abs(turns.turn[at]);
      // Small elements round to multiples of the type's least number.
      const double least = rows.after_dtype == DType::kFP16 ? 0x1p-24 : 0;
      const double f = plan.inv_freq[k] / plan.position_divisor;
      const double off = 2 * rounding + least / std::sqrt(turns.weight[at]);
      if (std::fabs(size / factor - 1) > 8 * off) return {};
      const double phases = call_.tolerance.of_angle * std::fabs(f) * largest_;
      if (phases > 0.5) continue;
      by_axis[plan.axis.empty() ? 0 : plan.axis[k]].push_back({sign * std::arg(turns.turn[at]), f, off + phases});
    }
    std::vector<MeasuredPosition> measured;
    std::optional<double> shift;  // of an axis whose position is certain
    for (int64_t axis = 0; axis < axes_; ++axis) {
      MeasuredPosition found = MeasurePosition(std::move(by_axis[axis]), std::max(kFarthest, 4 * largest_));
      if (!found.fits) return {};
      if (found.least == found.most && !shift) shift = found.position - stated(axis);
      measured.push_back(found);
    }
    for (int64_t axis = 0; axis < axes_; ++axis) {
      MeasuredPosition& found = measured[axis];
      const auto is_possible = [&found](double p) { return found.least <= p && p <= found.most; };
      if (is_possible(stated(axis))) {
        found.position = stated(axis);
      } else if (shift && is_possible(stated(axis) + *shift)) {
        found.position = stated(axis) + *shift;
      }
    }
    return measured;
  }

  absl::Status Place(const Turns& turns) {
    const double factor = FactorOf(turns);
    if (factor == 0) return absl::OkStatus();
    auto positions = std::make_shared<std::vector<std::vector<double>>>(call_.evidence.tokens.positions);
    const BatchRows batch(call_.evidence, call_.evidence.operands[turns.operand]);
    std::vector<Placed> placed;
    bool moved = false, inverse = true;
    size_t fitting = 0;
    for (size_t m = 0; m < turns.tokens.size(); ++m) {
      const std::vector<MeasuredPosition> measured = Measured(turns, m, factor);
      if (measured.empty()) continue;
      ++fitting;
      const int64_t token = turns.tokens[m];
      Placed one{.batch_row = batch.Of(token)};
      one.index = token - batch.Begin(one.batch_row);
      for (int64_t axis = 0; axis < axes_; ++axis) {
        const double stated = (*positions)[axis][token], applied = measured[axis].position;
        one.stated.push_back(stated);
        one.applied.push_back(applied);
        one.uncertainty.push_back(std::max(measured[axis].most - applied, applied - measured[axis].least));
        moved |= applied != stated;
        inverse &= applied == -stated;
        (*positions)[axis][token] = applied;
      }
      placed.push_back(std::move(one));
    }
    if (fitting == 0) return absl::OkStatus();
    Placement found;
    Candidate& candidate = found.explanation.candidate;
    candidate = base_;
    const auto departs = [&](std::vector<Departure> more) {
      for (Departure& departure : more) candidate.departures.push_back(std::move(departure));
    };
    if (moved && inverse) {
      candidate.direction = call_.asked.DirectionOf(base_.direction == Direction::kForward ? -1 : 1);
      departs(MatchDepartures(call_.asked, {.direction = base_.direction == Direction::kForward ? -1.0 : 1.0},
                              call_.evidence.tokens));
    } else if (moved) {
      candidate.positions = std::move(positions);
      candidate.free_values += static_cast<int64_t>(placed.size()) * axes_;
    }
    SetFactor(turns, factor, &candidate);
    if (candidate.departures.empty() && !candidate.positions) return absl::OkStatus();
    found.explanation.variant = reference_.variant;
    POSENC_RETURN_IF_ERROR(Compare(turns, &found));
    if (!IsOfMost(turns, found.rows)) return absl::OkStatus();
    if (!candidate.positions) {
      found_.push_back(std::move(found));
    } else {
      SayPositions(turns, placed, std::move(found));
    }
    return absl::OkStatus();
  }

  // True if most of the tokens are explained: of a token here and there another frequency may be the reason.
  bool IsOfMost(const Turns& turns, const RowSet& rows) const {
    constexpr double kMost = 0.6;
    const int64_t heads = call_.evidence.operands[turns.operand].heads;
    const auto explained = std::count_if(turns.tokens.begin(), turns.tokens.end(), [&](int64_t token) {
      const auto row = rows[turns.operand].begin() + token * heads;
      return std::find(row, row + heads, 1) != row + heads;
    });
    return static_cast<double>(explained) >= kMost * static_cast<double>(turns.tokens.size());
  }

  // Adds two faults: of the tokens that moved, and of those that only have another factor, if there are some.
  void SayPositions(const Turns& turns, std::vector<Placed> placed, Placement found) {
    const int64_t heads = call_.evidence.operands[turns.operand].heads;
    const BatchRows batch(call_.evidence, call_.evidence.operands[turns.operand]);
    const auto rows_of = [&](const Placed& one, RowSet* rows) {
      return (*rows)[turns.operand].begin() + (batch.Begin(one.batch_row) + one.index) * heads;
    };
    std::erase_if(placed, [&](const Placed& one) {
      const auto row = rows_of(one, &found.rows);
      return std::find(row, row + heads, 1) == row + heads;
    });
    // Rows at position 0 that miss their factor are rows that were not rotated.
    const auto at_zero = [](const Placed& one) {
      return std::all_of(one.applied.begin(), one.applied.end(), [](double p) { return p == 0; });
    };
    const bool unscaled = found.explanation.candidate.attention_scaling == 1 &&
                          std::all_of(placed.begin(), placed.end(),
                                      [&](const Placed& one) { return one.stated == one.applied || at_zero(one); });
    Placement as_stated = found;
    for (const Placed& one : placed) {
      const bool moved = one.stated != one.applied || (unscaled && at_zero(one));
      const auto row = rows_of(one, moved ? &as_stated.rows : &found.rows);
      std::fill(row, row + heads, 0);
    }
    if (!as_stated.explanation.candidate.departures.empty() && !IsEmpty(as_stated.rows)) found_.push_back(as_stated);
    if (IsEmpty(found.rows)) return;
    for (int64_t axis = 0; axis < axes_; ++axis) {
      MeasuredPositions& measured = found.positions.emplace_back();
      measured.axis = axis;
      for (const Placed& one : placed) {
        if (one.stated == one.applied) continue;
        measured.batch_rows.push_back(one.batch_row);
        measured.tokens.push_back(one.index);
        measured.stated.push_back(one.stated[axis]);
        measured.measured.push_back(one.applied[axis]);
        measured.uncertainty.push_back(one.uncertainty[axis]);
      }
    }
    // First of what is not the option's, because a factor is the lesser fault.
    std::vector<Departure>& departures = found.explanation.candidate.departures;
    const std::vector<Departure> where = PositionDepartures(placed, AsStated(turns.operand), AxisNames());
    if (where.empty()) return;
    if (where[0].code == "NOT_ROTATED" && unscaled) {
      std::erase_if(departures, [](const Departure& one) { return one.code == "ATTENTION_FACTOR"; });
    }
    const auto at_head = [&](const Placed& one) {
      return one.stated == one.applied || one.applied[0] == static_cast<double>(turns.heads[0]);
    };
    found.at_its_head = turns.heads.size() == 1 && std::all_of(placed.begin(), placed.end(), at_head);
    departures.insert(departures.begin() + static_cast<int64_t>(option_.departures.size()), where.begin(), where.end());
    found_.push_back(std::move(found));
  }

  // Positions of the tokens in which the reference explains every head.
  std::vector<std::vector<double>> AsStated(size_t operand) const {
    const Tokens& tokens = call_.evidence.tokens;
    const int64_t heads = call_.evidence.operands[operand].heads;
    std::vector<std::vector<double>> stated;
    for (int64_t t = 0; t < tokens.count(); ++t) {
      const auto row = reference_.proof.misfits->rows[operand].begin() + t * heads;
      if (std::find(row, row + heads, 1) != row + heads) continue;
      std::vector<double>& position = stated.emplace_back();
      for (int64_t axis = 0; axis < axes_; ++axis) position.push_back(tokens.positions[axis][t]);
    }
    return stated;
  }

  std::vector<std::string> AxisNames() const {
    std::vector<std::string> names;
    for (int64_t axis = 0; axes_ > 1 && axis < axes_; ++axis) {
      names.push_back(axes_ == 3 ? std::string(1, "thw"[axis]) : std::to_string(axis));
    }
    return names;
  }

  // Sets the factor if it is not the plan's within what the measurement tells.
  void SetFactor(const Turns& turns, double factor, Candidate* candidate) const {
    const double own = plans_[0]->attention_scaling;
    const Rows& rows = call_.evidence.operands[turns.operand];
    const double values = static_cast<double>(turns.turn.size());
    const double uncertainty = std::max(8 * RoundingOf(rows) / std::sqrt(values), 2e-6);
    // Tables of the tensor's type round the factor with their entries.
    if (std::fabs(factor / own - 1) <= std::max(uncertainty, RoundingOf(rows) / 2)) return;
    candidate->attention_scaling = Snap(factor, uncertainty);
    ++candidate->free_values;
    candidate->departures.push_back(AttentionDeparture(call_.asked, *candidate->attention_scaling, own));
  }

  absl::Status Compare(const Turns& turns, Placement* found) {
    found->rows = NoRows(call_.evidence);
    POSENC_RETURN_IF_ERROR(call_.CompareWithAll(&found->explanation));
    if (!found->explanation.complete) return absl::OkStatus();
    found->explanation.sample_digest = found->explanation.proof.digest;
    const Misfits& misfits = *found->explanation.proof.misfits;
    const int64_t heads = call_.evidence.operands[turns.operand].heads;
    for (const int64_t token : turns.tokens) {
      for (const int64_t h : turns.heads) {
        const int64_t row = token * heads + h;
        found->rows[turns.operand][row] = rest_[turns.operand][row] && !misfits.rows[turns.operand][row];
      }
    }
    return absl::OkStatus();
  }

  const RotationCall& call_;
  const Explanation& reference_;
  const Option& option_;
  const RowSet& rest_;
  Candidate base_;
  double largest_ = 0;
  int64_t axes_ = 1;
  std::vector<std::shared_ptr<const RotaryPlan>> plans_;
  std::vector<Placement> found_;
};

}  // namespace

absl::StatusOr<std::vector<Placement>> ExplainByPositions(const RotationCall& call, const Explanation& reference,
                                                          const Option& option, const RowSet& rest) {
  return PositionFinder(call, reference, option, rest).Find();
}

}  // namespace posenc::diagnose
