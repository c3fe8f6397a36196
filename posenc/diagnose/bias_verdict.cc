#include "posenc/diagnose/bias_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostBiasFaults = 4;

class BiasJudge {
 public:
  BiasJudge(const BiasEvidence& e, const ExplainedBias& whole, const BiasCall& call)
      : e_(e), whole_(whole), asked_(whole.asked()), call_(call) {
    verdict_.tolerance = {.ulp = call.tolerance_ulp, .wide_ulp = call.tolerance_ulp, .of_angle = 0};
    verdict_.bound = fmt::format("{} ulp of {}", Short(call.tolerance_ulp), Name(ComparedAs(e.bias.dtype)));
  }

  absl::StatusOr<Verdict> Judge(const std::optional<AskedBias>& asked) {
    if (!asked) {
      Find();
    } else if (asked_->comparison.elements() == 0) {
      verdict_.sentence = whole_.diagnosis.sentence;
    } else if (asked_->fits()) {
      Match();
    } else {
      POSENC_RETURN_IF_ERROR(FindFaults(*asked));
    }
    return std::move(verdict_);
  }

 private:
  // Nothing was asked for.
  void Find() {
    const BiasExplanation* best = BestExplanation(e_, whole_);
    if (best != nullptr) verdict_.kind = VerdictKind::kMatches;
    verdict_.sentence = best == nullptr ? whole_.diagnosis.sentence : best->sentence;
  }

  // Concludes with a match, unless a fault gives every bit and what was asked for does not.
  void Match() {
    std::optional<Fault> fault;
    if (!call_.within_is_right) fault = NameBetterFit(e_, whole_);
    if (fault) {
      fault->parts.emplace_back();
      verdict_.faults.push_back(*std::move(fault));
      return Conclude(Axis(), true, &verdict_);
    }
    const int64_t values = CountValues(e_, whole_.diagnosis.structure);
    if (4 * asked_->free_values > 3 * values) {
      verdict_.sentence = fmt::format("the data show {} values, and {} of them make the table: any bias would fit",
                                      values, asked_->free_values);
      return;
    }
    verdict_.kind = VerdictKind::kMatches;
    const uint64_t equal = asked_->comparison.equal(), all = asked_->comparison.elements();
    verdict_.sentence = equal == all
                            ? fmt::format("all {} cells are equal, bit for bit", all)
                            : fmt::format("{} of {} cells are equal, all within {}", equal, all, verdict_.bound);
    if (const int64_t masked = whole_.diagnosis.structure.mask.cells; masked > 0) {
      verdict_.sentence += fmt::format("; {} cells are masked", masked);
    }
    const size_t place = asked_->sentence.find("; ");
    if (place != std::string::npos) verdict_.sentence += asked_->sentence.substr(place);
  }

  // Explains the rows that are not as asked for, part by part.
  absl::Status FindFaults(const AskedBias& asked) {
    std::vector<uint8_t> rest = asked_->misfits.rows;
    const auto any = [&rest] { return std::find(rest.begin(), rest.end(), 1) != rest.end(); };
    for (size_t n = 0; n < kMostBiasFaults && any(); ++n) {
      POSENC_ASSIGN_OR_RETURN(const bool found, FindFault(asked, &rest));
      if (!found) break;
    }
    if (any()) {
      POSENC_ASSIGN_OR_RETURN(Fault fault, Unexplained(rest));
      fault.parts = {PartOfRows(e_, rest)};
      if (verdict_.faults.empty()) fault.parts[0].distances = Distances(*asked_, 0);
      verdict_.faults.push_back(std::move(fault));
    }
    Conclude(Axis(), true, &verdict_);
    return absl::OkStatus();
  }

  // Measures the rows that nothing explains.
  absl::StatusOr<Fault> Unexplained(const std::vector<uint8_t>& rest) const {
    const BiasBox box = BoxesOf(e_, rest)[0];  // with all queries
    const BiasEvidence part = Crop(e_, box);
    POSENC_ASSIGN_OR_RETURN(BiasStructure structure, FindStructure(part, call_.limits, call_.cancelled));
    const int64_t values = CountValues(part, structure);
    if (structure.contradiction) {
      for (Cell* cell : {&structure.contradiction->first, &structure.contradiction->second}) {
        cell->b += box.batch_rows.first, cell->h += box.heads.first;
      }
    }
    Fault fault{.sentence = Describe(part, structure), .described = true, .values = values};
    if (const auto& first = asked_->first) {
      fault.sentence = fmt::format("other values: [{}, {}, {}, {}] has {}, not {}; {}", first->cell.b, first->cell.h,
                                   first->cell.i, first->cell.j, Short(first->given, first->computed),
                                   Short(first->computed, first->given), fault.sentence);
    }
    fault.departures = {{"OTHER_VALUES", fault.sentence}};
    return fault;
  }

  // Explains a box of the rows, and removes them. Returns false if nothing explains one.
  absl::StatusOr<bool> FindFault(const AskedBias& asked, std::vector<uint8_t>* rest) {
    std::optional<Fault> fitted;  // the first with more free values than one for each head
    BiasBox of_fitted;
    for (const BiasBox& box : BoxesOf(e_, *rest)) {
      POSENC_ASSIGN_OR_RETURN(std::optional<Fault> fault, NameFaultIn(box, asked, *rest));
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

  void Take(const BiasBox& box, Fault fault, std::vector<uint8_t>* rest) {
    for (int64_t b = box.batch_rows.first; b <= box.batch_rows.last; ++b) {
      for (int64_t h = box.heads.first; h <= box.heads.last; ++h) {
        const auto row = rest->begin() + (b * e_.heads() + h) * e_.queries();
        std::fill(row + box.queries.first, row + box.queries.last + 1, 0);
      }
    }
    Add(std::move(fault));
  }

  absl::StatusOr<std::optional<Fault>> NameFaultIn(const BiasBox& box, const AskedBias& asked,
                                                   const std::vector<uint8_t>& rest) const {
    if (IsWhole(box)) {
      std::optional<Fault> fault;
      if (verdict_.faults.empty()) fault = NameBiasFault(e_, whole_);
      if (fault) SetPart(PartOfRows(e_, rest), *asked_, box, &*fault);
      return fault;
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
    std::vector<uint8_t> rows = rest;  // of this box
    for (int64_t n = 0; n < static_cast<int64_t>(rows.size()); ++n) {
      const int64_t h = n / e_.queries() % e_.heads(), b = n / e_.queries() / e_.heads();
      rows[n] &= h >= box.heads.first && h <= box.heads.last && b >= box.batch_rows.first && b <= box.batch_rows.last;
    }
    SetPart(PartOfRows(e_, rows), *explained->asked(), box, &*fault);
    return fault;
  }

  // Names queries only if the fault was found in some of them.
  void SetPart(Part part, const BiasExplanation& asked, const BiasBox& box, Fault* fault) const {
    if (box.queries == IndexRange{0, e_.queries() - 1}) part.tokens.clear();
    if (fault->departures[0].code == "BUCKETS") part.distances = Distances(asked, box.queries.first);
    fault->parts = {std::move(part)};
  }

  // Distances at which the explanation is wrong. `first`: the query with which its evidence begins.
  static std::vector<IndexRange> Distances(const BiasExplanation& asked, int64_t first) {
    std::vector<IndexRange> ranges = Ranges(asked.misfits.distances);
    const int64_t shift = 1 - *asked.geometry.query_length - first;
    for (IndexRange& range : ranges) range.first += shift, range.last += shift;
    return ranges;
  }

  // Adds a fault, or its part to an equal fault of other parts.
  void Add(Fault fault) {
    for (Fault& other : verdict_.faults) {
      if (other.sentence != fault.sentence) continue;
      other.parts.push_back(std::move(fault.parts[0]));
      other.free_values += fault.free_values;
      other.values += fault.values;
      return;
    }
    verdict_.faults.push_back(std::move(fault));
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
  TokenAxis Axis() const { return {"query", "queries", e_.queries()}; }

  const BiasEvidence& e_;
  const ExplainedBias& whole_;
  const BiasExplanation* const asked_;
  const BiasCall& call_;
  Verdict verdict_;
};

}  // namespace

absl::StatusOr<Verdict> JudgeBias(const BiasEvidence& evidence, const ExplainedBias& whole,
                                  const std::optional<AskedBias>& asked, const BiasCall& call) {
  return BiasJudge(evidence, whole, call).Judge(asked);
}

}  // namespace posenc::diagnose
