#include "posenc/diagnose/describe_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>
#include <optional>

#include "posenc/base/status.h"
#include "posenc/diagnose/blocks.h"
#include "posenc/diagnose/compute_rows.h"
#include "posenc/diagnose/options.h"
#include "posenc/diagnose/pair_products.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

// A row has the first kind that fits it. kNear: no pair is clearly off.
enum class Kind { kBeforeNotFinite, kNotFinite, kOutside, kNear, kZeros, kUnchanged, kScaled, kTurned, kOther };

// Rows of one kind, whose pairs differ alike.
struct Class {
  RowSet rows;
  std::vector<uint8_t> pairs;      // those that differ in some of them
  double least = 1e300, most = 0;  // factors of norms
  double sum = 0;                  // of those that are alike
  // The pair that is off by the largest angle.
  int64_t token = -1, pair = -1;
  double angle = 0, expected = 0;
  // By pair: the other axes by which it may turn, as bits; those of every row.
  std::vector<uint32_t> axes;
};

// A row whose pairs turn by the expected angles, but whose norms all have another factor.
struct Scaled {
  double factor, uncertainty;
  size_t operand;
  int64_t row;
};

class Describer {
 public:
  Describer(const RotationCall& call, const Explanation& reference, const RowSet& rest)
      : call_(call), reference_(reference), rest_(rest) {}

  absl::StatusOr<std::vector<Fault>> Run() {
    for (size_t n = 0; n < call_.evidence.operands.size(); ++n) {
      if (!IsEmpty({rest_[n]})) POSENC_RETURN_IF_ERROR(Classify(n));
    }
    JoinMixed();
    std::vector<Fault> faults = ScaledFaults();
    for (const auto& [kind, found] : classes_) faults.push_back(ToFault(kind, found));
    return faults;
  }

 private:
  absl::Status Classify(size_t operand) {
    const Candidate& candidate = reference_.candidate;
    const Rows& rows = call_.evidence.operands[operand];
    POSENC_ASSIGN_OR_RETURN(
        const CandidateTable table,
        TableOf(candidate, operand, reference_.variant.precision.frequencies, call_.evidence.tokens, call_.limits));
    const auto describe = [&](const Block& block, int64_t first) {
      const int64_t count = block.tokens * block.heads;
      const auto wanted = rest_[operand].begin() + first;
      if (std::find(wanted, wanted + count, 1) == wanted + count) return;
      const auto ours = ComputeRows(candidate, reference_.variant, table, call_.evidence, operand, block);
      std::vector<double> expected(count * rows.width), before(expected.size()), after(expected.size());
      std::vector<std::byte> bytes(expected.size() * sizeof(double));
      Convert(rows.after_dtype, DType::kFP64, ours.data(), expected.data(), expected.size());
      rows.Load(true, block, bytes.data());
      Convert(rows.before_dtype, DType::kFP64, bytes.data(), before.data(), before.size());
      rows.Load(false, block, bytes.data());
      Convert(rows.after_dtype, DType::kFP64, bytes.data(), after.data(), after.size());
      const std::lock_guard lock(mutex_);
      for (int64_t row = 0; row < count; ++row) {
        if (!wanted[row]) continue;
        Take(operand, first + row, table, before.data() + row * rows.width, expected.data() + row * rows.width,
             after.data() + row * rows.width);
      }
    };
    return ForEachBlock(rows, call_.pool, call_.cancelled, 5 * sizeof(double), describe);
  }

  // x before, e expected, y after.
  void Take(size_t operand, int64_t row, const CandidateTable& table, const double* x, const double* e,
            const double* y) {
    const Rows& rows = call_.evidence.operands[operand];
    const PairLayout layout = LayoutOf(reference_.candidate, operand);
    const int64_t token = row / rows.heads;
    const double rounding = RoundingOf(rows);
    std::vector<int64_t> off;
    std::vector<uint32_t> axes(layout.rotary_dim / 2, ~uint32_t{0});
    bool before_finite = true, finite = true, zeros = true, unchanged = true, outside = false, same_angles = true;
    double least = 1e300, most = 0, worst = 0, outside_least = 1e300, outside_most = -1e300, norms = 0,
           wanted_norms = 0;
    Class seen;
    for (int64_t element = 0; element < rows.width; ++element) {
      before_finite &= std::isfinite(x[element]);
      finite &= std::isfinite(y[element]) || !std::isfinite(e[element]);
      const bool rotates = element >= layout.offset && element < layout.offset + layout.rotary_dim;
      if (rotates || y[element] == e[element] || !std::isfinite(e[element])) continue;
      outside = true;
      if (std::fabs(e[element]) < 0x1p-10) continue;  // too small to tell a factor
      outside_least = std::min(outside_least, y[element] / e[element]);
      outside_most = std::max(outside_most, y[element] / e[element]);
    }
    for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
      const int64_t i = layout.First(layout.input, k), j = layout.Second(layout.input, k);
      const int64_t p = layout.First(layout.output, k), q = layout.Second(layout.output, k);
      const std::complex<double> in(x[i], x[j]), out(y[p], y[q]), wanted(e[p], e[q]);
      const double phases = call_.tolerance.of_angle * table.Angle(token, k);
      const double allowed = (4 * rounding + phases) * std::abs(wanted) + 0x1p-24 * (rows.after_dtype == DType::kFP16);
      if (std::abs(out - wanted) <= allowed) continue;
      off.push_back(k);
      zeros &= out == 0.0;
      unchanged &= y[p] == x[p] && y[q] == x[q];
      const double factor = std::abs(out) / std::abs(wanted);
      least = std::min(least, factor), most = std::max(most, factor);
      axes[k] = OtherAxes(table, token, k, std::arg(out * std::conj(in)), 8 * rounding + phases);
      const double error = std::abs(std::arg(out * std::conj(wanted)));
      same_angles &= error <= 8 * rounding + phases;
      norms += std::norm(out), wanted_norms += std::norm(wanted);
      if (std::abs(in) > 0 && error > worst) {
        worst = error;
        seen.token = token, seen.pair = k;
        seen.angle = std::arg(out * std::conj(in)), seen.expected = std::arg(wanted * std::conj(in));
      }
    }
    const bool turned = most <= least * (1 + 16 * rounding);
    const double factor = std::sqrt(norms / wanted_norms);
    const double uncertainty = 4 * rounding / std::sqrt(static_cast<double>(off.size()));
    const bool scaled = turned && same_angles && least > 0;
    const Kind kind = !before_finite ? Kind::kBeforeNotFinite
                      : !finite      ? Kind::kNotFinite
                      : off.empty()  ? (outside ? Kind::kOutside : Kind::kNear)
                      : zeros        ? Kind::kZeros
                      : unchanged    ? Kind::kUnchanged
                      : scaled       ? Kind::kScaled
                      : turned       ? Kind::kTurned
                                     : Kind::kOther;
    if (kind == Kind::kScaled) {
      scaled_.push_back({factor, uncertainty, operand, row});
      return;
    }
    if (kind == Kind::kOutside) least = outside_least, most = outside_most;
    Class& all = classes_[kind];
    if (all.rows.empty()) {
      all.rows = NoRows(call_.evidence);
      all.pairs.resize(layout.rotary_dim / 2);
      all.axes.resize(layout.rotary_dim / 2, ~uint32_t{0});
    }
    for (size_t k = 0; k < axes.size(); ++k) all.axes[k] &= axes[k];
    if (kind == Kind::kOther) {
      for (int64_t k = 0; k < layout.rotary_dim / 2; ++k) {
        const int64_t p = layout.First(layout.output, k), q = layout.Second(layout.output, k);
        products_.Add({x[layout.First(layout.input, k)], x[layout.Second(layout.input, k)]}, {e[p], e[q]},
                      {y[p], y[q]});
      }
    }
    all.rows[operand][row] = 1;
    for (const int64_t k : off) all.pairs[k] = 1;
    all.least = std::min(all.least, least), all.most = std::max(all.most, most);
    if (all.token < 0 || std::fabs(std::remainder(seen.angle - seen.expected, 2 * std::numbers::pi)) >
                             std::fabs(std::remainder(all.angle - all.expected, 2 * std::numbers::pi))) {
      all.token = seen.token, all.pair = seen.pair, all.angle = seen.angle, all.expected = seen.expected;
    }
  }

  // The axes other than its own by which the pair turns by this angle.
  static uint32_t OtherAxes(const CandidateTable& table, int64_t token, int64_t pair, double angle, double deviation) {
    constexpr int64_t kMostAxes = 32;
    uint32_t axes = 0;
    for (int64_t axis = 0; axis < std::min(table.axes(), kMostAxes); ++axis) {
      const double off = std::remainder(angle - table.AngleOn(axis, token, pair), 2 * std::numbers::pi);
      if (axis != table.AxisOf(pair) && std::fabs(off) <= deviation) axes |= uint32_t{1} << axis;
    }
    return axes;
  }

  // The one axis by which all pairs that differ turn in all rows; nullopt if there is none.
  static std::optional<int> AxisOfAll(const Class& found) {
    uint32_t axes = ~uint32_t{0};
    for (size_t k = 0; k < found.pairs.size(); ++k) {
      if (found.pairs[k]) axes &= found.axes[k];
    }
    if (axes == 0 || axes == ~uint32_t{0}) return std::nullopt;
    return std::countr_zero(axes);
  }

  // Rows that only turn beside many whose norms change, too, are of the same kind: there the norms change less.
  void JoinMixed() {
    constexpr int64_t kFew = 16;  // of all
    const auto turned = classes_.find(Kind::kTurned), other = classes_.find(Kind::kOther);
    if (turned == classes_.end() || other == classes_.end()) return;
    if (kFew * CountOf(other->second.rows) < CountOf(turned->second.rows)) return;
    Class& all = other->second;
    AddRows(turned->second.rows, &all.rows);
    for (size_t k = 0; k < all.pairs.size(); ++k) all.pairs[k] |= turned->second.pairs[k];
    all.least = std::min(all.least, turned->second.least), all.most = std::max(all.most, turned->second.most);
    classes_.erase(turned);
  }

  // One fault for each factor.
  std::vector<Fault> ScaledFaults() {
    constexpr size_t kMostFactors = 6;
    constexpr double kNearOne = 1e-3;
    std::sort(scaled_.begin(), scaled_.end(), [](const Scaled& a, const Scaled& b) { return a.factor < b.factor; });
    std::vector<size_t> ends;  // of rows with one factor
    for (size_t n = 1; n <= scaled_.size() && ends.size() <= kMostFactors; ++n) {
      if (n < scaled_.size() && scaled_[n].factor <= scaled_[n - 1].factor * (1 + scaled_[n].uncertainty)) continue;
      ends.push_back(n);
    }
    if (ends.size() > kMostFactors) ends = {scaled_.size()};
    std::vector<Class> classes;
    for (size_t n = 0, k = 0; k < ends.size(); ++k) {
      Class& found = classes.emplace_back();
      found.rows = NoRows(call_.evidence);
      found.least = scaled_[n].factor, found.most = scaled_[ends[k] - 1].factor;
      for (; n < ends[k]; ++n) {
        found.sum += scaled_[n].factor;
        found.rows[scaled_[n].operand][scaled_[n].row] = 1;
      }
    }
    std::vector<Fault> faults;
    for (const Class& found : classes) {
      const bool is_near = found.least > 1 - kNearOne && found.most < 1 + kNearOne;
      faults.push_back(ToFault(is_near ? Kind::kNear : Kind::kScaled, found));
    }
    return faults;
  }

  Fault ToFault(Kind kind, const Class& found) const {
    Fault fault{.departures = {Words(kind, found)}, .described = true};
    fault.sentence = fault.departures[0].message;
    // Rows that are within the tolerance but not equal may be told with the others.
    fault.parts =
        PartsOf(call_.evidence, found.rows, Without(reference_.proof.misfits->unequal, reference_.proof.misfits->rows));
    for (Part& part : fault.parts) part.pairs = Ranges(found.pairs);
    return fault;
  }

  std::string Angles(const Class& found) const {
    const BatchRows batch(call_.evidence, call_.evidence.operands[0]);
    const int64_t row = batch.Of(found.token);
    return fmt::format("pair {} of token {} by {} radians, not {}", found.pair, found.token - batch.Begin(row),
                       Short(found.angle, found.expected), Short(found.expected, found.angle));
  }

  Departure Words(Kind kind, const Class& found) const {
    const bool all = std::find(found.pairs.begin(), found.pairs.end(), 0) == found.pairs.end();
    const char* what = all ? "the rows" : "these pairs";
    const bool one_factor = found.most <= found.least * 1.01;
    switch (kind) {
      case Kind::kBeforeNotFinite: return {"NOT_FINITE", "before has elements that are not finite"};
      case Kind::kNotFinite: return {"NOT_FINITE", "after has elements that are not finite"};
      case Kind::kNear: return {"ROUNDING", "elements are off by little more than the bound"};
      case Kind::kZeros: return {"ZEROS", fmt::format("{} are zero", what)};
      case Kind::kUnchanged: return {"NOT_ROTATED", fmt::format("{} were not rotated", what)};
      case Kind::kScaled: {
        const bool one = found.most <= found.least * 1.01;
        return {"ATTENTION_FACTOR",
                fmt::format("the rows are scaled by {}, but turn by the right angles",
                            one ? fmt::format("{:.4g}", found.sum / static_cast<double>(CountOf(found.rows)))
                                : fmt::format("{:.4g} to {:.4g}", found.least, found.most))};
      }
      case Kind::kTurned: {
        if (const std::optional<int> axis = AxisOfAll(found)) {
          const bool of_time = call_.evidence.tokens.axes() == 3;
          return {"AXIS_OF_PAIRS", fmt::format("{} turn by the positions of axis {}", what,
                                               of_time ? std::string(1, "thw"[*axis]) : std::to_string(*axis))};
        }
        const std::string factor =
            one_factor && std::fabs(found.most - 1) > 0.01 ? fmt::format(", and scaled by {:.4g}", found.most) : "";
        return {"OTHER_ANGLES", fmt::format("{} turn by other angles{}: {}", what, factor, Angles(found))};
      }
      case Kind::kOther:
        if (auto products = products_.Words()) return {"NORMS_CHANGED", *std::move(products)};
        return {"NORMS_CHANGED", fmt::format("norms of pairs are not kept: {:.4g} to {:.4g} times the expected ones",
                                             found.least, found.most)};
      case Kind::kOutside: {
        const std::string times = one_factor ? fmt::format(": multiplied by {:.4g}", found.most) : "";
        return {"PASS_THROUGH_CHANGED", "elements that should not rotate are changed" + times};
      }
    }
    __builtin_unreachable();
  }

  const RotationCall& call_;
  const Explanation& reference_;
  const RowSet& rest_;
  std::mutex mutex_;
  std::map<Kind, Class> classes_;
  std::vector<Scaled> scaled_;
  PairProducts products_;  // of rows of kind kOther
};

}  // namespace

absl::StatusOr<std::vector<Fault>> DescribeRows(const RotationCall& call, const Explanation& reference,
                                                const RowSet& rest) {
  return Describer(call, reference, rest).Run();
}

}  // namespace posenc::diagnose
