#include "posenc/diagnose/bias_search.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

// Prefixes fields of the expected method with "expected"; renames fields of the geometry to those of the request.
absl::Status OfExpected(const absl::Status& status) {
  if (!CannotBe(status)) return status;
  const ErrorDetails details = DetailsOf(status);
  if (!details.field.starts_with("geometry")) {
    return Renamed(status, [](std::string_view field) {  // the layout's errors name the method as GenerateBias does
      if (field.starts_with("method.")) field.remove_prefix(std::string_view("method.").size());
      return std::string("expected.") + std::string(field);
    });
  }
  if (absl::IsResourceExhausted(status)) return TooLarge("bias.shape", details.value, details.limit);
  return InvalidArgument(details.reason, "query_offset", details.value, details.limit);
}

// True if the bias does not depend on the queries' position.
bool IsWithoutPlace(const BiasMethod& method) {
  const auto* alibi = std::get_if<AlibiSettings>(&method.settings);
  return WindowOf(method) || std::holds_alternative<NopeSettings>(method.settings) ||
         (alibi != nullptr && IsKeyOnly(alibi->form));
}

bool Contains(const std::vector<int64_t>& offsets, int64_t offset) {
  return std::find(offsets.begin(), offsets.end(), offset) != offsets.end();
}

}  // namespace

bool CannotBe(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
}

bool IsBetter(const Comparison& a, const Comparison& b) {
  return std::pair(-a.share(), a.mean_log()) < std::pair(-b.share(), b.mean_log());
}

int64_t OffsetOf(const BiasExplanation& explanation) {
  const auto* offset = std::get_if<OffsetPositions>(&explanation.geometry.query);
  return offset == nullptr ? 0 : offset->offset;
}

absl::StatusOr<BiasExplanation> BiasSearch::ProveAsked(AskedBias asked) const {
  POSENC_RETURN_IF_ERROR(OfExpected(Complete(asked.method, call_.limits)));
  POSENC_RETURN_IF_ERROR(CheckFits(asked));
  const auto* t5 = std::get_if<T5Settings>(&asked.method.settings);
  if (t5 != nullptr && !asked.method.table && *t5->num_buckets > call_.limits.max_bias_values / evidence_.heads()) {
    return OfExpected(
        TooLarge("t5.num_buckets", fmt::format("{} for {} heads", *t5->num_buckets, evidence_.heads()),
                 fmt::format("must be at most {} values (max_bias_values)", call_.limits.max_bias_values)));
  }
  const std::vector<int64_t> usual = UsualOffsets(evidence_, structure_);
  std::optional<BiasExplanation> best;
  int exact = 0;  // offsets that give every bit
  for (const int64_t offset : RightOffsets(asked)) {
    auto one = ProveAskedAt(asked, offset);
    if (best && CannotBe(one.status())) continue;
    POSENC_RETURN_IF_ERROR(one.status());
    exact += one->comparison.share() == 1;
    if (!best || IsBetter(one->comparison, best->comparison)) best = *std::move(one);
    if (IsWithoutPlace(asked.method) || exact > 1 || (exact > 0 && Contains(usual, OffsetOf(*best)))) break;
  }
  if (exact > 1) best->sentence += " or elsewhere";
  if (!best->fits() && !IsPlaced(evidence_, structure_)) {
    POSENC_ASSIGN_OR_RETURN(std::optional<BiasExplanation> elsewhere, ProveElsewhere(asked));
    if (elsewhere) best = std::move(elsewhere);
  }
  return *std::move(best);
}

absl::StatusOr<std::optional<BiasExplanation>> BiasSearch::ProveElsewhere(const AskedBias& completed) const {
  BiasCall call = call_;
  call.only_fits = true;
  const BiasSearch quick(evidence_, structure_, call);
  std::optional<BiasExplanation> best;
  for (const int64_t offset : OtherOffsets(completed)) {
    auto one = quick.ProveAskedAt(completed, offset);
    POSENC_RETURN_IF_ERROR(call_.cancelled());
    if (one.ok() && one->fits() && (!best || IsBetter(one->comparison, best->comparison))) best = *std::move(one);
    if (best && best->comparison.share() == 1) break;
  }
  return best;
}

absl::StatusOr<BiasExplanation> BiasSearch::ProveAskedAt(const AskedBias& asked, int64_t offset) const {
  BiasExplanation one{.method = asked.method, .precision = asked.precision, .asked = true};
  one.sentence = asked.of_model ? "the model's bias" : "the settings' bias";
  const auto* t5 = std::get_if<T5Settings>(&asked.method.settings);
  if (t5 != nullptr && !asked.method.table) {
    POSENC_ASSIGN_OR_RETURN(one.method.table, FirstValues(evidence_, structure_.mask, asked.precision.frequencies, *t5,
                                                          offset, call_.cancelled));
    one.sentence += ", with a table of the first value found in each bucket";
    for (float& value : one.method.table->values) {
      one.free_values += !std::isnan(value);
      if (!std::isfinite(value)) value = 0;
    }
  }
  one.geometry = Geometry(offset, asked.head_start.value_or(0));
  if (WindowOf(asked.method)) one.geometry.query = std::monostate();
  if (!IsWithoutPlace(asked.method)) one.sentence += Place(evidence_, offset);
  POSENC_RETURN_IF_ERROR(OfExpected(Prove(&one)));
  return one;
}

std::vector<int64_t> BiasSearch::RightOffsets(const AskedBias& asked) const {
  if (evidence_.query_offset) return {*evidence_.query_offset};
  if (evidence_.queries() == evidence_.keys()) return UsualOffsets(evidence_, structure_);
  if (IsPlaced(evidence_, structure_)) return {structure_.mask.offset};
  return std::holds_alternative<T5Settings>(asked.method.settings)
             ? T5Offsets(evidence_, structure_, asked.method, asked.precision, asked.head_start.value_or(0))
             : QueryOffsets(evidence_, structure_);
}

std::vector<int64_t> BiasSearch::OtherOffsets(const AskedBias& asked) const {
  const bool is_t5 = std::holds_alternative<T5Settings>(asked.method.settings);
  std::vector<int64_t> others;
  if (IsWithoutPlace(asked.method) || (is_t5 && !IsPlaced(evidence_, structure_))) return others;
  const std::vector<int64_t> right = RightOffsets(asked);
  const auto add = [&](int64_t offset) {
    if (!Contains(right, offset) && !Contains(others, offset)) others.push_back(offset);
  };
  // Without an expected table, many offsets fit by chance.
  const bool has_values = !is_t5 || (asked.method.table && !asked.table_found);
  for (int64_t step = 1; step <= (has_values ? 16 : 1); ++step) add(right[0] + step), add(right[0] - step);
  for (const int64_t offset :
       !has_values ? UsualOffsets(evidence_, structure_)
       : is_t5     ? T5Offsets(evidence_, structure_, asked.method, asked.precision, asked.head_start.value_or(0))
                   : QueryOffsets(evidence_, structure_)) {
    add(offset);
  }
  return others;
}

absl::StatusOr<std::optional<BiasExplanation>> BiasSearch::ProveCandidate(const BiasCandidate& candidate) const {
  std::optional<BiasExplanation> best;
  for (const BiasVariant& variant : candidate.variants) {
    BiasExplanation one{.method = variant.method,
                        .precision = variant.precision,
                        .geometry = Geometry(candidate.query_offset, candidate.head_start),
                        .free_values = candidate.free_values,
                        .sentence = candidate.sentence + variant.suffix};
    const absl::Status status = Prove(&one);
    if (CannotBe(status)) continue;
    POSENC_RETURN_IF_ERROR(status);
    const bool fits_as_well = best && one.fits() == best->fits();
    if (!best || (fits_as_well ? IsBetter(one.comparison, best->comparison) : one.fits())) best = std::move(one);
    if (best->comparison.share() == 1) break;
  }
  return best;
}

absl::Status BiasSearch::CheckFits(const AskedBias& asked) const {
  const int64_t here = evidence_.heads();
  if (const auto window = WindowOf(asked.method);
      window && (evidence_.queries() != window->count() || evidence_.keys() != window->count())) {
    return InvalidArgument("MISMATCH", "bias.shape", ToString(evidence_.bias.shape),
                           fmt::format("must have Sq and Sk {}, the tokens in expected's window", window->count()));
  }
  const std::optional<int64_t> heads = HeadsOf(asked.method);
  if (asked.head_start && !heads) {
    return InvalidArgument("NOT_READ", "head_start", "",
                           "must be absent if expected does not give its number of heads");
  }
  if (asked.head_start && (*asked.head_start < 0 || *asked.head_start > *heads - here)) {
    return InvalidArgument("OUT_OF_RANGE", "head_start", fmt::format("{}", *asked.head_start),
                           fmt::format("must place the {} heads of bias among expected's {} heads", here, *heads));
  }
  if (!heads || asked.head_start || *heads == here) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", "bias.shape", fmt::format("{} heads", here),
      fmt::format("must be {}, as in expected, unless head_start gives the first head of bias", *heads));
}

absl::Status BiasSearch::Prove(BiasExplanation* explanation) const {
  return diagnose::Prove(evidence_, structure_.mask, call_, explanation);
}

BiasGeometry BiasSearch::Geometry(int64_t offset, int64_t head_start) const {
  return {.query_length = evidence_.queries(),
          .key_length = evidence_.keys(),
          .query = OffsetPositions{offset},
          .head_start = head_start,
          .head_count = evidence_.heads()};
}

}  // namespace posenc::diagnose
