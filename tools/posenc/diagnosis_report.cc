#include "tools/posenc/diagnosis_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

std::string PrecisionName(const v1::PrecisionAxes& axes) {
  struct Preset {
    v1::FrequencyArithmetic frequencies;
    v1::TableDtype table;
    v1::Rounding rounding;
    const char* name;
  };
  constexpr Preset kPresets[] = {
      {v1::FREQUENCY_ARITHMETIC_EXACT, v1::TABLE_DTYPE_FLOAT32, v1::ROUNDING_ONCE, "exact"},
      {v1::FREQUENCY_ARITHMETIC_FLOAT32, v1::TABLE_DTYPE_FLOAT32, v1::ROUNDING_ONCE, "f32"},
      {v1::FREQUENCY_ARITHMETIC_FLOAT32, v1::TABLE_DTYPE_TENSOR, v1::ROUNDING_EACH_OPERATION, "hf_eager"},
      {v1::FREQUENCY_ARITHMETIC_FLOAT32, v1::TABLE_DTYPE_TENSOR, v1::ROUNDING_ONCE, "vllm"},
      {v1::FREQUENCY_ARITHMETIC_FLOAT64, v1::TABLE_DTYPE_FLOAT32, v1::ROUNDING_ONCE, "flux"},
  };
  for (const Preset& preset : kPresets) {
    if (preset.frequencies == axes.frequencies() && preset.table == axes.table_dtype() &&
        preset.rounding == axes.rounding()) {
      return preset.name;
    }
  }
  return absl::StrCat("frequencies ", EnumName(axes.frequencies()), ", tables ", EnumName(axes.table_dtype()),
                      ", rounding ", EnumName(axes.rounding()));
}

std::string FirstDifference(const v1::FirstDifference& first) {
  const std::string name = first.operand() == v1::OPERAND_UNSPECIFIED ? "" : EnumName(first.operand()) + " ";
  return absl::StrFormat("at %s[%s]: %.9g computed, %.9g given", name, absl::StrJoin(first.index(), ", "),
                         first.computed(), first.given());
}

std::string ExplanationReport(const v1::Explanation& explanation, int number) {
  Rows rows = {{"equal", AgreementText(explanation)}};
  if (explanation.has_first_difference()) {
    rows.emplace_back("first difference", FirstDifference(explanation.first_difference()));
  }
  std::vector<std::string> same;
  for (const v1::PrecisionAxes& axes : explanation.same_precisions()) same.push_back(PrecisionName(axes));
  rows.emplace_back("precision", PrecisionName(explanation.precision()) +
                                     (same.empty() ? "" : "; same bytes as " + absl::StrJoin(same, ", ")));
  if (explanation.computed_in() != v1::DATA_TYPE_UNSPECIFIED) {
    rows.emplace_back("computed in", EnumName(explanation.computed_in()));
  }
  if (explanation.k_computed_in() != v1::DATA_TYPE_UNSPECIFIED) {
    rows.emplace_back("k computed in", EnumName(explanation.k_computed_in()));
  }
  rows.emplace_back("settings", SettingsLine(explanation.settings()));
  if (explanation.same_as() + 1 != number) {
    rows.emplace_back("note", absl::StrCat("same bytes as explanation ", explanation.same_as() + 1, " on this data"));
  }
  return absl::StrFormat("%d. %s\n%s", number, explanation.sentence(), Aligned(rows, "   "));
}

std::string MeasuredReport(const v1::MeasuredRotation& measured) {
  std::string text = "Measured: ";
  if (measured.input_pairing() != v1::PAIRING_UNSPECIFIED) {
    text += EnumName(measured.input_pairing());
    if (measured.output_pairing() != measured.input_pairing()) {
      text += " input, " + EnumName(measured.output_pairing()) + " output";
    }
    text += ", ";
  }
  absl::StrAppendFormat(&text, "%d dimensions", measured.rotary_dim());
  if (measured.rotary_offset() != 0) absl::StrAppendFormat(&text, " from element %d on", measured.rotary_offset());
  absl::StrAppendFormat(&text, ", attention scaling %.6g\n", measured.attention_scaling());
  constexpr int kShown = 4;
  Rows rows;
  const int pairs = measured.inv_freq_size();
  for (int k = 0; k < pairs; ++k) {
    if (k == kShown && pairs > 2 * kShown) {
      rows.emplace_back("   ...", "");
      k = pairs - kShown;
    }
    const double uncertainty = measured.inv_freq_uncertainty(k);
    rows.emplace_back(absl::StrFormat("   pair %d", k),
                      std::isfinite(uncertainty)
                          ? absl::StrFormat("%.8g +- %.1g radians per position", measured.inv_freq(k), uncertainty)
                          : "unknown");
  }
  return text + Aligned(rows);
}

}  // namespace

std::string AgreementText(const v1::Explanation& explanation) {
  const char* of = explanation.complete() ? "" : " of a sample";
  if (explanation.equal_elements() == explanation.elements()) {
    return absl::StrFormat("all %d elements%s, bit for bit", explanation.elements(), of);
  }
  const double percent = std::min(100 * explanation.equal_share(), 99.99);  // never 100 % if a few elements differ
  return absl::StrFormat("%d of %d elements%s (%.4g %%); worst %u ulp, median %u", explanation.equal_elements(),
                         explanation.elements(), of, percent, explanation.worst_ulp(), explanation.median_ulp());
}

std::string KindOf(const v1::Verdict& verdict) {
  std::string kind = v1::VerdictKind_Name(verdict.kind()).substr(std::string_view("VERDICT_KIND_").size());
  std::replace(kind.begin(), kind.end(), '_', ' ');
  return kind;
}

std::string InOneLine(const v1::Verdict& verdict) { return absl::StrCat(KindOf(verdict), ": ", verdict.sentence()); }

std::string VerdictReport(const v1::Verdict& verdict) { return InOneLine(verdict) + "\n"; }

int ExitCode(const v1::Verdict& verdict) {
  switch (verdict.kind()) {
    case v1::VERDICT_KIND_MATCHES: return kDone;
    case v1::VERDICT_KIND_DIFFERS:
    case v1::VERDICT_KIND_SEVERAL_FAULTS: return kNo;
    default: return kCannotTell;
  }
}

std::string DoubtReport(const v1::Undecided& undecided) {
  return absl::StrCat("Undecided: ", undecided.message(), ".\n  Needed to decide: ", undecided.remedy(), ".\n");
}

std::string DiagnosisReport(const v1::DiagnoseResponse& response) {
  const std::string verdict = VerdictReport(response.verdict()) + "\n";
  std::string text;
  const auto add_doubts = [&](bool aliases) {
    for (const v1::Undecided& undecided : response.undecided()) {
      if ((undecided.code() == "ALIASES") != aliases) continue;
      text += DoubtReport(undecided);
    }
  };
  add_doubts(false);  // first, because they limit what the explanations prove
  if (!text.empty()) text += "\n";
  for (int n = 0; n < response.explanations_size(); ++n) {
    text += ExplanationReport(response.explanations(n), n + 1) + "\n";
  }
  if (response.has_measured()) text += MeasuredReport(response.measured()) + "\n";
  add_doubts(true);
  return verdict + text;
}

}  // namespace posenc::command
