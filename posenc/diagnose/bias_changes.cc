#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/diagnose/bias_search.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::diagnose {
namespace {

class ChangeFinder {
 public:
  ChangeFinder(const BiasEvidence& evidence, const BiasStructure& structure, const AskedBias& asked,
               const BiasExplanation& expected, const BiasCall& call)
      : e_(evidence), structure_(structure), asked_(asked), expected_(expected), call_(call) {
    call_.only_fits = true;
  }

  absl::StatusOr<std::vector<BiasChange>> Find() {
    POSENC_RETURN_IF_ERROR(TryTransposed());
    POSENC_RETURN_IF_ERROR(TryScales());
    POSENC_RETURN_IF_ERROR(TryOffsets());
    POSENC_RETURN_IF_ERROR(TryOtherOrders());
    return std::move(changes_);
  }

 private:
  // Adds the change if what was asked for fits the changed data. Returns an error only if the call was cancelled.
  absl::Status Try(const BiasEvidence& changed, const AskedBias& wanted, Departure departure, int64_t free_values) {
    auto one = BiasSearch(changed, structure_, call_).ProveAsked(wanted);
    if (!one.ok()) return call_.cancelled();
    one->free_values += free_values;
    if (!one->fits()) return absl::OkStatus();
    int exponent;
    const bool rounds = std::fabs(std::frexp(changed.divisor, &exponent)) != 0.5;  // the divisor is no power of two
    changes_.push_back({*std::move(one), std::move(departure), rounds});
    return absl::OkStatus();
  }

  absl::Status TryTransposed() {
    if (e_.queries() != e_.keys() || e_.queries() < 2 || structure_.follows == Follows::kNothing) return absl::OkStatus();
    BiasEvidence transposed = e_;
    transposed.transposed = true;
    return Try(transposed, asked_, {"TRANSPOSED", "the bias is transposed: queries and keys are exchanged"}, 0);
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
      const size_t before = changes_.size();
      POSENC_RETURN_IF_ERROR(Try(scaled, asked_,
                                 factor == "-1" ? Departure{"SIGN", "the bias has the wrong sign"}
                                 : divided      ? Departure{"SCALE", "the bias was divided by " + factor}
                                                : Departure{"SCALE", "the bias was multiplied by " + factor},
                                 factor == "-1" ? 0 : 1));
      if (changes_.size() > before) break;
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
    changes_.push_back({*std::move(best), {"QUERY_OFFSET", OffsetFault(e_, shift)}});
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
      const size_t before = changes_.size();
      POSENC_RETURN_IF_ERROR(
          Try(e_, other, {"TABLE", "the table was read in the other order of heads and buckets"}, 0));
      if (changes_.size() > before) break;
    }
    return absl::OkStatus();
  }

  const BiasEvidence& e_;
  const BiasStructure& structure_;
  const AskedBias& asked_;
  const BiasExplanation& expected_;
  BiasCall call_;
  std::vector<BiasChange> changes_;
};

}  // namespace

std::string OffsetFault(const BiasEvidence& e, int64_t shift) {
  const int64_t by = std::abs(shift);
  const std::string queries = fmt::format("positions of the queries are {} too {}", by, shift > 0 ? "large" : "small");
  if (e.query_offset || e.queries() == e.keys()) return queries;
  return queries + fmt::format(", or the mask is {} too {}", by, shift > 0 ? "narrow" : "wide");
}

absl::StatusOr<std::vector<BiasChange>> ProveChanges(const BiasEvidence& evidence, const BiasStructure& structure,
                                                     const AskedBias& asked, const BiasExplanation& expected,
                                                     const BiasCall& call) {
  return ChangeFinder(evidence, structure, asked, expected, call).Find();
}

}  // namespace posenc::diagnose
