#include "tools/posenc/bias_report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/posenc/diagnosis_report.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

std::string Agreement(const v1::BiasExplanation& explanation) {
  if (explanation.elements() == 0) return "nothing to compare";
  if (explanation.equal_elements() == explanation.elements()) {
    return absl::StrFormat("all %d cells, bit for bit", explanation.elements());
  }
  const double percent = std::min(100 * explanation.equal_share(), 99.99);  // never 100 % if a few cells differ
  return absl::StrFormat("%d of %d cells (%.4g %%); worst %u ulp, median %u", explanation.equal_elements(),
                         explanation.elements(), percent, explanation.worst_ulp(), explanation.median_ulp());
}

std::string ExplanationReport(const v1::BiasExplanation& explanation, int number) {
  Rows rows = {{"equal", Agreement(explanation)}};
  if (explanation.has_first_difference()) {
    const v1::FirstDifference& first = explanation.first_difference();
    rows.emplace_back("first difference",
                      absl::StrFormat("at [%s]: %.9g computed, %.9g given", absl::StrJoin(first.index(), ", "),
                                      first.computed(), first.given()));
  }
  const v1::BiasMethod& method = explanation.method();
  const auto* field = v1::BiasMethod::descriptor()->FindFieldByNumber(method.method_case());
  rows.emplace_back(
      "method", absl::StrCat(field == nullptr ? "unknown to this version" : field->name(), ": ", SettingsLine(method)));
  const v1::BiasGeometry& geometry = explanation.geometry();
  const v1::AlibiForm form = method.alibi().form();
  const bool of_key = form == v1::ALIBI_FORM_BLOOM || form == v1::ALIBI_FORM_MPT;
  if (geometry.has_query_offset() && !of_key) rows.emplace_back("first query", absl::StrCat(geometry.query_offset()));
  if (geometry.has_head_start()) {
    rows.emplace_back(
        "heads", absl::StrFormat("%d .. %d", geometry.head_start(), geometry.head_start() + geometry.head_count() - 1));
  }
  if (explanation.precision().frequencies() != v1::FREQUENCY_ARITHMETIC_EXACT) {
    rows.emplace_back("precision", EnumName(explanation.precision().frequencies()));
  }
  return absl::StrFormat("%d. %s\n%s", number, explanation.sentence(), Aligned(rows, "   "));
}

// Reports the most informative values of the first head: the ones nearest to distance 0, or to key 0.
std::string ValuesReport(const v1::DiagnoseBiasResponse& response, int64_t queries) {
  const bool by_distance = response.follows() == v1::BIAS_FOLLOWS_DISTANCE;
  const int64_t first = by_distance ? 1 - queries : 0, count = response.values().shape(1);
  const auto value = [&response](int64_t n) {
    double element;
    std::memcpy(&element, response.values().data().data() + n * sizeof(element), sizeof(element));
    return element;
  };
  std::vector<int64_t> known;
  for (int64_t n = 0; n < count; ++n) {
    if (!std::isnan(value(n))) known.push_back(n);
  }
  constexpr size_t kShown = 9;
  std::stable_sort(known.begin(), known.end(),
                   [first](int64_t a, int64_t b) { return std::abs(a + first) < std::abs(b + first); });
  known.resize(std::min(known.size(), kShown));
  std::sort(known.begin(), known.end());
  Rows rows;
  for (const int64_t n : known) {
    rows.emplace_back(absl::StrFormat("   %s %d", by_distance ? "j - i =" : "key", n + first),
                      absl::StrFormat("%.9g", value(n)));
  }
  return absl::StrFormat("Values of head 0, %d of %d:\n%s", known.size(), count, Aligned(rows));
}

}  // namespace

std::string BiasReport(const v1::DiagnoseBiasResponse& response, int64_t queries) {
  std::string text = absl::StrCat(VerdictReport(response.verdict()), "\nMeasured: ", response.sentence(), ".\n");
  const auto add_doubts = [&](bool aliases) {
    for (const v1::Undecided& undecided : response.undecided()) {
      if ((undecided.code() == "ALIASES") == aliases) text += DoubtReport(undecided);
    }
  };
  add_doubts(false);  // first, because they limit what the explanations prove
  text += "\n";
  for (int n = 0; n < response.explanations_size(); ++n) {
    text += ExplanationReport(response.explanations(n), n + 1) + "\n";
  }
  const bool proven = response.explanations_size() > 0 && response.explanations(0).equal_share() == 1;
  if (!proven && response.has_values()) text += ValuesReport(response, queries) + "\n";
  add_doubts(true);
  return text;
}

}  // namespace posenc::command
