#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace posenc::diagnose {
namespace {

bool AllAreMasked(const BiasEvidence& e, const FoundMask& mask) {
  return mask.cells == e.batch() * e.heads() * e.queries() * e.keys();
}

std::string Fill(const FoundMask& mask) {
  if (mask.kind == MaskKind::kNone) return "";
  if (mask.fill == mask.highest_fill) return fmt::format("; masked cells are {:.9g}", mask.fill);
  return fmt::format("; masked cells are {:.9g} .. {:.9g}: two fill values, or one added to the bias", mask.fill,
                     mask.highest_fill);
}

// Number of distances, or keys, that have a value.
int64_t Known(const BiasStructure& structure) {
  if (structure.values.empty()) return 0;
  const std::vector<double>& head = structure.values[0];
  return std::count_if(head.begin(), head.end(), [](double value) { return !std::isnan(value); });
}

}  // namespace

std::string Describe(const FoundMask& mask) {
  std::string text;
  switch (mask.kind) {
    case MaskKind::kNone: return "no mask";
    case MaskKind::kKeys: text = "no mask except hidden keys"; break;
    case MaskKind::kCausal: text = fmt::format("causal: query i sees keys up to i{:+}", mask.offset); break;
    case MaskKind::kWindow:
      text = fmt::format("a window: query i sees {} keys up to i{:+}", mask.window, mask.offset);
      break;
    case MaskKind::kPrefix:
      text = fmt::format("a prefix: all queries see the first {} keys, query i those up to i{:+}", mask.prefix,
                         mask.offset);
      break;
    case MaskKind::kOther: text = "a mask that is neither causal, nor a window, nor a prefix"; break;
  }
  if (mask.padded_keys > 0) text += fmt::format("; {} keys are hidden from all queries", mask.padded_keys);
  return text;
}

std::string Describe(const BiasEvidence& e, const BiasStructure& structure) {
  if (AllAreMasked(e, structure.mask)) return fmt::format("every cell is masked with {:.9g}", structure.mask.fill);
  std::string mask = Describe(structure.mask) + Fill(structure.mask);
  if (e.bias.dtype == DType::kFP64) mask += "; float64 values are compared as float32";
  switch (structure.follows) {
    case Follows::kNothing: return mask + "; the other values are 0: no bias";
    case Follows::kDistance: return mask + "; values depend only on the distance (Toeplitz)";
    case Follows::kKey: return mask + "; every query has the same row: values depend only on the key";
    case Follows::kBoth: break;
  }
  const auto& [a, b] = *structure.contradiction;
  return mask + fmt::format(
                    "; values do not depend only on the distance: [{}, {}, {}, {}] and [{}, {}, {}, {}] have the same "
                    "distance and differ",
                    a.b, a.h, a.i, a.j, b.b, b.h, b.i, b.j);
}

std::vector<Undecided> Doubts(const BiasEvidence& e, const BiasDiagnosis& diagnosis) {
  const BiasStructure& structure = diagnosis.structure;
  if (AllAreMasked(e, structure.mask)) {
    return {{"ALL_MASKED", "every cell is masked: there is no value to compare",
             "the bias before its mask, or rows that see a key"}};
  }
  const auto& found = diagnosis.explanations;
  if (structure.follows == Follows::kNothing) {
    const bool has_free_table = std::any_of(
        found.begin(), found.end(), [](const BiasExplanation& one) { return one.asked && one.free_values > 0; });
    if (!has_free_table) return {};
    return {{"ONE_VALUE", "all values are 0, as of a table of zeros, or of none", "the table, in expected"}};
  }
  const bool proven = !found.empty() && found[0].comparison.share() == 1;
  std::vector<Undecided> doubts;
  if (structure.follows != Follows::kBoth && Known(structure) > 1 && IsConstant(structure)) {
    return {{"ONE_VALUE", "every head has one value: softmax cancels it, and any method could give it",
             "a bias whose values differ between distances"}};
  }
  if (Known(structure) == 1) {
    doubts.push_back({"ONE_DISTANCE", "all values have the same distance: any slope or table fits",
                      "a few adjacent queries and keys"});
  } else if (e.queries() == 1) {
    doubts.push_back(
        {"ONE_QUERY", "with one query, values by distance and by key are the same", "rows of two or more queries"});
  }
  if (!proven && structure.follows == Follows::kBoth) {
    doubts.push_back({"NOT_OF_DISTANCE",
                      "the values depend on both positions; in all methods that are tried they depend only on the "
                      "distance or only on the key",
                      "the bias before scores or another bias were added; or, in expected, a method whose bias depends "
                      "on both positions, such as a window bias or FIRE"});
  } else if (const uint64_t rounding = ComparedAs(e.bias.dtype) == DType::kFP32 ? 16 : 2;
             !proven && !found.empty() && found[0].comparison.worst() <= rounding) {
    doubts.push_back({"ROUNDING",
                      fmt::format("the first explanation is within {} ulp of every value: probably the same method "
                                  "with other roundings",
                                  found[0].comparison.worst()),
                      "the arithmetic of the code that computed it; here slopes, positions and products are float32"});
  } else if (!proven) {
    doubts.push_back({"NO_METHOD",
                      fmt::format("no method that was tried gives these values{}",
                                  found.empty() ? "" : "; the first explanation is the nearest"),
                      "the intended method, in expected; or the values before they were rounded, scaled or added to "
                      "others"});
  }
  std::string same;
  // Forms of ALiBi that differ only at keys that the mask hides are no alternatives.
  const auto cannot_matter = [&](const BiasExplanation& other) {
    const auto *a = std::get_if<AlibiSettings>(&found[0].method.settings),
               *b = std::get_if<AlibiSettings>(&other.method.settings);
    if (other.free_values > found[0].free_values) return true;  // numbers taken from the data always fit
    return a != nullptr && b != nullptr && OffsetOf(found[0]) == OffsetOf(other) &&
           structure.mask.HidesLater(OffsetOf(other)) && SlopesHere(found[0], *a) == SlopesHere(other, *b);
  };
  for (size_t n = 1; proven && n < found.size(); ++n) {
    if (found[n].same_as == 0 && !cannot_matter(found[n])) same += (same.empty() ? "" : "; ") + found[n].sentence;
  }
  if (!same.empty()) {
    doubts.push_back({"ALIASES", "these give the same bytes on this data as the first: " + same,
                      "cells that are masked here, more distances, or another first query"});
  }
  return doubts;
}

}  // namespace posenc::diagnose
