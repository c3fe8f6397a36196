#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/diagnose/bias_search.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::diagnose {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ChangeFinder {
 public:
  ChangeFinder(const BiasEvidence& evidence, const BiasStructure& structure, const AskedBias& asked,
               const BiasExplanation& expected, const BiasCall& call)
      : e_(evidence), structure_(structure), asked_(asked), expected_(expected), call_(call) {
    call_.only_fits = true;
  }

  absl::StatusOr<BiasChanges> Find() {
    POSENC_RETURN_IF_ERROR(TryTransposed());
    POSENC_RETURN_IF_ERROR(TryScales());
    POSENC_RETURN_IF_ERROR(TryOffsets());
    POSENC_RETURN_IF_ERROR(TryOtherOrders());
    if (asked_.table_found || expected_.free_values > 0) return std::move(changes_);
    POSENC_RETURN_IF_ERROR(TryClipped());
    TryOtherBuckets();
    return std::move(changes_);
  }

 private:
  // Adds the fault if what was asked for fits the changed data; returns false if it does not. An error only if the call
  // was cancelled.
  absl::StatusOr<bool> Try(const BiasEvidence& changed, const AskedBias& wanted, FittedFault fault) {
    const auto one = BiasSearch(changed, structure_, call_).ProveAsked(wanted);
    POSENC_RETURN_IF_ERROR(call_.cancelled());
    if (!one.ok() || !one->fits()) return false;
    fault.free_values += one->free_values;
    int exponent;  // a divisor that is no power of two rounds
    fault.gives_bytes = one->comparison.share() == 1 && std::fabs(std::frexp(changed.divisor, &exponent)) == 0.5;
    changes_.faults.push_back(std::move(fault));
    return true;
  }

  absl::Status TryTransposed() {
    const bool has_other_side = e_.queries() == e_.keys() && e_.queries() > 1;
    if (!has_other_side || structure_.follows == Follows::kNothing) return absl::OkStatus();
    BiasEvidence transposed = e_;
    transposed.transposed = true;
    return Try(transposed, asked_,
               FittedFault::Of("TRANSPOSED", "the bias is transposed: queries and keys are exchanged"))
        .status();
  }

  absl::Status TryScales() {
    const double ratio = expected_.ratio;
    if (!std::isfinite(ratio) || ratio == 0 || ratio == 1) return absl::OkStatus();
    for (const double divisor : {ratio, 1 / Snap(1 / ratio, 1e-2), Snap(ratio, 1e-2)}) {
      const bool divided = std::fabs(divisor) < 1;
      const std::string factor = Short(divided ? 1 / divisor : divisor);
      if (factor == "1") continue;  // a difference of roundings
      BiasEvidence scaled = e_;
      scaled.divisor = divisor;
      const std::string words = "the bias was " + std::string(divided ? "divided by " : "multiplied by ") + factor;
      POSENC_ASSIGN_OR_RETURN(const bool found,
                              Try(scaled, asked_,
                                  factor == "-1" ? FittedFault::Of("SIGN", "the bias has the wrong sign")
                                                 : FittedFault::Of("SCALE", words, 1)));
      if (found) break;
    }
    return absl::OkStatus();
  }

  absl::Status TryOffsets() {
    if (!IsPlaced(e_, structure_)) return absl::OkStatus();  // ProveAsked() tried all offsets
    const BiasSearch search(e_, structure_, call_);
    AskedBias completed = asked_;
    POSENC_RETURN_IF_ERROR(Complete(completed.method, call_.limits));
    POSENC_ASSIGN_OR_RETURN(std::optional<BiasExplanation> best, search.ProveElsewhere(completed));
    if (!best) return absl::OkStatus();
    ++best->free_values;
    best->asked = false;
    const int64_t shift = OffsetOf(*best) - OffsetOf(expected_);
    FittedFault fault = FittedFault::Of("QUERY_OFFSET", OffsetFault(e_, shift), best->free_values);
    fault.gives_bytes = best->comparison.share() == 1;
    changes_.faults.push_back(std::move(fault));
    changes_.elsewhere = std::move(best);
    return absl::OkStatus();
  }

  // The port read the list in the other order of the axes.
  absl::Status TryOtherOrders() {
    if (!asked_.method.table || asked_.method.table->rows < 2 || asked_.method.table->columns < 2) {
      return absl::OkStatus();
    }
    const BiasTable& table = *asked_.method.table;
    for (const bool by_bucket : {true, false}) {
      AskedBias other = asked_;
      for (int64_t h = 0; h < table.rows; ++h) {
        for (int64_t n = 0; n < table.columns; ++n) {
          const int64_t at = by_bucket ? h * table.columns + n : n * table.rows + h;
          const int64_t from = by_bucket ? at % table.rows * table.columns + at / table.rows : at;
          other.method.table->values[h * table.columns + n] = table.values[from];
        }
      }
      POSENC_ASSIGN_OR_RETURN(
          const bool found,
          Try(e_, other, FittedFault::Of("TABLE", "the table was read in the other order of heads and buckets")));
      if (found) break;
    }
    return absl::OkStatus();
  }

  // Distances read the values of other buckets.
  void TryOtherBuckets() {
    if (!std::holds_alternative<T5Settings>(asked_.method.settings)) return;
    auto moved = TableFault(structure_, expected_, OffsetOf(expected_), ComparedAs(e_.bias.dtype));
    if (moved && moved->Has("BUCKETS")) changes_.faults.push_back(*std::move(moved));
  }

  // Cells that are wrong have the value of the farthest distance that is right, or the least or largest value of all.
  absl::Status TryClipped() {
    if (structure_.follows == Follows::kNothing) return absl::OkStatus();
    BiasExplanation again{
        .method = expected_.method, .precision = expected_.precision, .geometry = expected_.geometry, .asked = true};
    BiasCall call = call_;
    call.only_fits = false;
    const int64_t first = OffsetOf(expected_);
    int64_t nearest = std::numeric_limits<int64_t>::max();
    double low = -kInfinity, high = kInfinity;  // to which values were raised, lowered
    bool same = true;
    POSENC_RETURN_IF_ERROR(Prove(e_, structure_.mask, call, &again, [&](const BiasDifference& one) {
      nearest = std::min(nearest, std::abs(one.cell.j - one.cell.i - first));
      double& limit = one.given > one.computed ? low : high;
      if (std::isinf(limit)) limit = one.given;
      same &= limit == one.given;
    }));
    std::string words;
    if (structure_.follows == Follows::kDistance && FlatFrom(first) < nearest) {
      words = fmt::format("distances were clipped at {}", FlatFrom(first));
    }
    POSENC_RETURN_IF_ERROR(VisitRows(e_, call_.cancelled, [&](int64_t, int64_t, int64_t, const auto& row) {
      for (const double value : row) {
        const double given = value / e_.divisor;
        same &= structure_.mask.Hides(value) || (low <= given && given <= high);
      }
      return absl::OkStatus();
    }));
    if (same) {
      words +=
          fmt::format("{}values were clipped at {}", words.empty() ? "" : ", or ", Short(std::isinf(low) ? high : low));
      if (!std::isinf(low) && !std::isinf(high)) words += " and " + Short(high);
    }
    if (words.empty()) return absl::OkStatus();
    FittedFault fault = FittedFault::Of("CLIPPED", words, 1);
    const Comparison& comparison = again.comparison;
    fault.gives_bytes = comparison.equal() + static_cast<uint64_t>(again.misfits.cells) == comparison.elements();
    changes_.faults.push_back(std::move(fault));
    return absl::OkStatus();
  }
  // The distance from which on, on either side of a query, each head has one value.
  int64_t FlatFrom(int64_t first) const {
    int64_t flat = 0;
    for (size_t h = 0; h < structure_.values.size(); ++h) {
      const ByDistance values(structure_, h);
      for (const int64_t side : {-1, 1}) {
        double value = kNan;
        for (int64_t n = std::max(first - values.first(), values.last() - first); n > flat; --n) {
          const double here = values.At(first + side * n);
          if (std::isnan(value)) value = here;
          if (!std::isnan(here) && here != value) flat = n + 1;
        }
      }
    }
    return flat;
  }

  const BiasEvidence& e_;
  const BiasStructure& structure_;
  const AskedBias& asked_;
  const BiasExplanation& expected_;
  BiasCall call_;
  BiasChanges changes_;
};

}  // namespace

std::string OffsetFault(const BiasEvidence& e, int64_t shift) {
  const int64_t by = std::abs(shift);
  const std::string queries = fmt::format("positions of the queries are {} too {}", by, shift > 0 ? "large" : "small");
  if (e.query_offset || e.queries() == e.keys()) return queries;
  return queries + fmt::format(", or the mask is {} too {}", by, shift > 0 ? "narrow" : "wide");
}

absl::StatusOr<BiasChanges> ProveChanges(const BiasEvidence& evidence, const BiasStructure& structure,
                                         const AskedBias& asked, const BiasExplanation& expected,
                                         const BiasCall& call) {
  return ChangeFinder(evidence, structure, asked, expected, call).Find();
}

}  // namespace posenc::diagnose
