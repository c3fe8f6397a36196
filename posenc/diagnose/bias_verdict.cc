#include "posenc/diagnose/bias_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/diagnose/bias_cells.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostBiasFaults = 4;

class BiasJudge {
 public:
  BiasJudge(const BiasEvidence& e, const ExplainedBias& whole, const CheckedMask& mask, const BiasCall& call)
      : e_(e), whole_(whole), asked_(whole.asked()), mask_(mask), call_(call) {
    verdict_.tolerance = {.ulp = call.tolerance_ulp, .wide_ulp = call.tolerance_ulp, .of_angle = 0};
    verdict_.bound = fmt::format("{} ulp of {}", Short(call.tolerance_ulp), Name(ComparedAs(e.bias.dtype)));
  }

  absl::StatusOr<Verdict> Judge(const std::optional<AskedBias>& asked) {
    if (!asked) {
      Find();
      return std::move(verdict_);
    }
    if (asked_->fits()) {
      POSENC_RETURN_IF_ERROR(Match());
    } else if (asked_->comparison.elements() > 0) {
      POSENC_RETURN_IF_ERROR(FindFaults(*asked));
    }
    const bool rest_matches = verdict_.kind == VerdictKind::kMatches || !verdict_.faults.empty();
    if (mask_.fault) verdict_.faults.push_back(*mask_.fault);
    if (!verdict_.faults.empty()) Conclude(TokenAxis{"query", "queries", e_.queries()}, rest_matches, &verdict_);
    if (verdict_.kind != VerdictKind::kUnknown) verdict_.sentence += Remarks();
    return std::move(verdict_);
  }

 private:
  // Nothing was asked for.
  void Find() {
    const BiasExplanation* best = BestExplanation(e_, whole_);
    if (best == nullptr) return;
    verdict_.kind = VerdictKind::kMatches;
    verdict_.sentence = best->sentence;
  }

  // A match, unless a fault gives every bit and what was asked for does not.
  absl::Status Match() {
    std::optional<Fault> fault;
    if (!call_.within_is_right) fault = NameBetterFit(e_, whole_);
    if (fault) {
      Add(*std::move(fault), false, std::vector<uint8_t>(asked_->misfits.rows.size(), 1));
      return SetParts(0);
    }
    const BiasStructure& structure = whole_.diagnosis.structure;
    if (asked_->free_values > 0 && structure.follows != Follows::kBoth && IsConstant(structure)) {
      verdict_.sentence = "every head has one value, and the table was not given: the data do not tell";
      return absl::OkStatus();
    }
    const int64_t values = CountValues(e_, structure);
    if (4 * asked_->free_values > 3 * values) {
      verdict_.sentence = fmt::format("the data show {} values, and {} of them make the table: any bias would fit",
                                      values, asked_->free_values);
      return absl::OkStatus();
    }
    verdict_.kind = VerdictKind::kMatches;
    const uint64_t equal = asked_->comparison.equal(), all = asked_->comparison.elements();
    verdict_.sentence = equal == all
                            ? fmt::format("all {} cells are equal, bit for bit", all)
                            : fmt::format("{} of {} cells are equal, all within {}", equal, all, verdict_.bound);
    if (asked_->misfits.shifted_rows > 0) verdict_.sentence += " up to a constant in each row, which softmax removes";
    const size_t place = asked_->sentence.find("; ");
    if (place != std::string::npos) verdict_.sentence += asked_->sentence.substr(place);
    return absl::OkStatus();
  }

  // Returns the end of the first line. It names the parts that were not checked, and a constant that softmax removes.
  std::string Remarks() const {
    std::string text;
    const BiasMisfits& misfits = asked_->misfits;
    if (!asked_->fits() && misfits.other_rows == 0) {
      text += "; softmax removes the difference, a constant in each row: --up-to-softmax accepts it";
    }
    if (asked_->free_values > 0) text += "; the table was not checked";
    if (mask_.checked && !mask_.fault) {
      text += "; the mask is as expected";
    } else if (!mask_.checked) {
      text += "; the mask was not checked";
      if (mask_.found.kind != MaskKind::kNone) text += fmt::format(" ({})", Describe(mask_.found));
    }
    return text;
  }

  // Explains the rows that are not as asked for, part by part.
  absl::Status FindFaults(const AskedBias& asked) {
    std::vector<uint8_t> rest = asked_->misfits.rows;
    const auto any = [&rest] { return std::find(rest.begin(), rest.end(), 1) != rest.end(); };
    for (size_t n = 0; n < kMostBiasFaults && any(); ++n) {
      POSENC_ASSIGN_OR_RETURN(const bool found, FindFault(asked, &rest));
      if (!found) break;
    }
    if (any()) Add({.described = true}, false, rest);
    return SetParts(call_.tolerance_ulp);
  }

  // Gives the faults the parts that differ by more than the tolerance.
  absl::Status SetParts(double tolerance_ulp) {
    BiasCall call = call_;
    call.tolerance_ulp = tolerance_ulp;
    call.up_to_softmax &= asked_->misfits.shifted_rows > 0;  // else Prove() would call twice
    std::vector<CellSet> cells(claims_.size(), CellSet(e_));
    BiasExplanation again{
        .method = asked_->method, .precision = asked_->precision, .geometry = asked_->geometry, .asked = true};
    const auto add = [&](const BiasDifference& one) {
      const Cell& at = one.cell;
      for (size_t n = 0; n < claims_.size(); ++n) {
        if (!claims_[n].rows[(at.b * e_.heads() + at.h) * e_.queries() + at.i]) continue;
        if (cells[n].empty() && verdict_.faults[n].described) SayFirst(one, &verdict_.faults[n]);
        cells[n].Add(at);
      }
    };
    const FoundMask& mask = whole_.diagnosis.structure.mask;
    POSENC_RETURN_IF_ERROR(Prove(e_, mask, call, &again, add));
    std::vector<double> row(e_.keys());
    Cell loaded{-1, -1, -1, -1};
    const auto is_shown = [&](const Cell& at) {
      if (at.b != loaded.b || at.h != loaded.h || at.i != loaded.i) e_.Load(at.b, at.h, at.i, row.data()), loaded = at;
      return !mask.Hides(row[at.j]);
    };
    for (size_t n = 0; n < claims_.size(); ++n) {
      Fault& fault = verdict_.faults[n];
      std::vector<Part> described;
      fault.parts = cells[n].Parts(is_shown, &described);
      // Cells that match do not show a fault that explains them.
      const bool of_distances = !fault.departures.empty() && fault.departures[0].code == "BUCKETS";
      fault.said = fault.described ? described : cells[n].Outline(claims_[n].some_queries, of_distances);
    }
    return absl::OkStatus();
  }

  // Describes a fault that nothing explains by its first cell.
  void SayFirst(const BiasDifference& first, Fault* fault) const {
    if (asked_->misfits.other_rows == 0) {
      fault->departures = {{"ROW_CONSTANT", "a constant was added to each row"}};
    } else {
      const auto& [b, h, i, j] = first.cell;
      fault->departures = {
          {"OTHER_VALUES", fmt::format("[{}, {}, {}, {}] has {}, not {}", b, h, i, j,
                                       Short(first.given, first.computed), Short(first.computed, first.given))}};
    }
    fault->sentence = fault->departures[0].message;
  }

  // Explains a box of the rows, and removes them. Returns false if nothing explains one.
  absl::StatusOr<bool> FindFault(const AskedBias& asked, std::vector<uint8_t>* rest) {
    std::optional<Fault> fitted;  // the first with more free values than one for each head
    BiasBox of_fitted;
    for (const BiasBox& box : BoxesOf(e_, *rest)) {
      POSENC_ASSIGN_OR_RETURN(std::optional<Fault> fault, NameFaultIn(box, asked));
      // If the table or the position is not known, parts are no better measure than one explanation of all.
      const bool of_all = IsWhole(box) && (asked_->free_values > 0 || !IsPlaced());
      if (fault && (of_all || fault->free_values <= box.heads.last - box.heads.first + 1)) {
        Take(box, *std::move(fault), rest);
        return true;
      }
      if (fault && !fitted) fitted = std::move(fault), of_fitted = box;
    }
    if (!fitted) return false;
    Take(of_fitted, *std::move(fitted), rest);
    return true;
  }

  // Claims the rows of the box for the fault.
  void Take(const BiasBox& box, Fault fault, std::vector<uint8_t>* rest) {
    std::vector<uint8_t> rows(rest->size());
    for (int64_t b = box.batch_rows.first; b <= box.batch_rows.last; ++b) {
      for (int64_t h = box.heads.first; h <= box.heads.last; ++h) {
        for (int64_t i = box.queries.first; i <= box.queries.last; ++i) {
          std::swap(rows[(b * e_.heads() + h) * e_.queries() + i], (*rest)[(b * e_.heads() + h) * e_.queries() + i]);
        }
      }
    }
    Add(std::move(fault), box.queries != IndexRange{0, e_.queries() - 1}, rows);
  }

  absl::StatusOr<std::optional<Fault>> NameFaultIn(const BiasBox& box, const AskedBias& asked) const {
    if (IsWhole(box)) {
      return verdict_.faults.empty() ? NameBiasFault(e_, whole_) : std::nullopt;
    }
    if (asked_->free_values > 0 && !IsPlaced()) return std::nullopt;  // then nothing measures a part
    BiasEvidence part = Crop(e_, box);
    if (IsPlaced()) part.query_offset = OffsetOf(*asked_) + box.queries.first;
    AskedBias of_part = asked;
    of_part.method = asked_->method;  // T5's table is the one of the whole
    of_part.table_found = asked_->free_values > 0;
    if (HeadsOf(of_part.method)) of_part.head_start = asked.head_start.value_or(0) + box.heads.first;
    BiasCall call = call_;
    call.only_fits = true;
    const auto explained = ExplainBias(part, of_part, call);
    if (!explained.ok()) {
      if (CannotBe(explained.status())) return std::nullopt;
      return explained.status();
    }
    std::optional<Fault> fault = NameBiasFault(part, *explained);
    if (!fault) return fault;
    // Few queries show each distance once or twice, which proves no table.
    constexpr int64_t kFewQueries = 16;
    if (fault->free_values > part.heads() && part.queries() < std::min(kFewQueries, e_.queries())) return std::nullopt;
    return fault;
  }

  // Adds a fault, or its rows to those of an equal fault.
  void Add(Fault fault, bool some_queries, const std::vector<uint8_t>& rows) {
    for (size_t n = 0; n < verdict_.faults.size(); ++n) {
      if (fault.described || verdict_.faults[n].sentence != fault.sentence) continue;
      for (size_t row = 0; row < rows.size(); ++row) claims_[n].rows[row] |= rows[row];
      claims_[n].some_queries |= some_queries;
      verdict_.faults[n].free_values += fault.free_values;
      verdict_.faults[n].values += fault.values;
      return;
    }
    verdict_.faults.push_back(std::move(fault));
    claims_.push_back({some_queries, rows});
  }

  bool IsWhole(const BiasBox& box) const {
    return box.batch_rows == IndexRange{0, e_.batch() - 1} && box.heads == IndexRange{0, e_.heads() - 1} &&
           box.queries == IndexRange{0, e_.queries() - 1};
  }
  // True if it is known where the queries stand. If nothing else says it, rows that are as asked for do; all rows of a
  // head if their table was taken from the data.
  bool IsPlaced() const {
    const std::vector<uint8_t>& rows = asked_->misfits.rows;
    const int64_t step = asked_->free_values > 0 ? e_.queries() : 1;
    bool placed = diagnose::IsPlaced(e_, whole_.diagnosis.structure);
    for (auto row = rows.begin(); row != rows.end() && !placed; row += step) {
      placed = std::count(row, row + step, 0) == step;
    }
    return placed;
  }

  // The rows that a fault explains, and whether it was found in some of their queries only.
  struct Claim {
    bool some_queries;
    std::vector<uint8_t> rows;
  };

  const BiasEvidence& e_;
  const ExplainedBias& whole_;
  const BiasExplanation* const asked_;
  const CheckedMask& mask_;
  const BiasCall& call_;
  Verdict verdict_;
  std::vector<Claim> claims_;  // of the verdict's faults
};

}  // namespace

absl::StatusOr<Verdict> JudgeBias(const BiasEvidence& evidence, const ExplainedBias& whole,
                                  const std::optional<AskedBias>& asked, const CheckedMask& mask,
                                  const BiasCall& call) {
  return BiasJudge(evidence, whole, mask, call).Judge(asked);
}

}  // namespace posenc::diagnose
