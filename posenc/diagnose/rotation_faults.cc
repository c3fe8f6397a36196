#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/describe_rows.h"
#include "posenc/diagnose/equal_bits.h"
#include "posenc/diagnose/make_fault.h"
#include "posenc/diagnose/position_faults.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kComplete = 4;  // candidates of a part that are compared with all elements
constexpr size_t kMostFaults = 4;

RowSet EveryRow(const Evidence& evidence) { return Complement(NoRows(evidence)); }

class FaultFinder {
 public:
  FaultFinder(const RotationCall& call, const SampleFindings& whole, const Explanation* reference)
      : call_(call), whole_(whole), reference_(reference), maker_(call, reference) {}

  // Explains the rows in which the reference is wrong, part by part.
  absl::StatusOr<FoundFaults> Explain() {
    RowSet rest = reference_ != nullptr ? reference_->proof.misfits->rows : EveryRow(call_.evidence);
    std::string measured;
    for (size_t n = 0; n < kMostFaults && !IsEmpty(rest); ++n) {
      POSENC_ASSIGN_OR_RETURN(const bool found, FindFault(&rest, &measured));
      if (!found) break;
    }
    const RowSet unclear = Unclear(rest);
    rest = Without(rest, unclear);
    if (!IsEmpty(rest) && reference_ != nullptr) {
      POSENC_ASSIGN_OR_RETURN(std::vector<Fault> described, DescribeRows(call_, *reference_, rest));
      std::move(described.begin(), described.end(), std::back_inserter(found_.faults));
    } else if (!IsEmpty(rest)) {
      found_.faults.push_back(maker_.Unexplained(measured, rest));
    }
    if (!IsEmpty(unclear)) {
      found_.faults.push_back(
          maker_.Unexplained("positions are too large for float32 phases, and nothing gives the same bits", unclear));
    }
    return std::move(found_);
  }

  // Explains what is within the tolerance: by a fault of the heads that are less equal than others, or else of all
  // rows.
  absl::StatusOr<FoundFaults> ExplainNearer() {
    if (const RowSet unequal = UnequalHeads(call_, *reference_); !IsEmpty(unequal)) {
      const Box box = BoxesOf(call_.evidence, unequal)[0];
      POSENC_ASSIGN_OR_RETURN(const std::vector<Explanation> candidates, ExplainBox(box, nullptr));
      const auto count = [&](const Explanation& one) { return static_cast<double>(CountUnequal(one, unequal)); };
      if (const Explanation* nearer = Nearest(candidates, unequal, count)) {
        found_.faults.push_back(maker_.Make(*nearer, candidates, unequal));
        return std::move(found_);
      }
    }
    const RowSet every = EveryRow(call_.evidence);
    const auto mean_log = [](const Explanation& one) { return one.proof.comparison.mean_log(); };
    const Explanation* nearer = Nearest(whole_.explanations, every, mean_log);
    if (nearer != nullptr) found_.faults.push_back(maker_.Make(*nearer, whole_.explanations, every));
    return std::move(found_);
  }

 private:
  // Returns those of the rows in which too few pairs of the reference are evidence.
  RowSet Unclear(const RowSet& rows) const {
    if (reference_ == nullptr || reference_->proof.misfits->unclear.empty()) return NoRows(call_.evidence);
    return Without(rows, Complement(reference_->proof.misfits->unclear));
  }

  // Explains as many of the rows as one explanation can, and removes them. Returns false if none explains a part.
  absl::StatusOr<bool> FindFault(RowSet* rest, std::string* measured) {
    // One departure that explains all rows, else positions, else several departures.
    std::vector<Explanation> of_all, single;
    for (const Explanation& one : whole_.explanations) {
      if (!one.complete || !one.proof.misfits || !IsEmpty(Both(*rest, one.proof.misfits->rows))) continue;
      of_all.push_back(one);
      if (call_.AllDepartures(one).size() == 1) single.push_back(one);
    }
    if (UseBest(single, true, rest)) return true;
    if (call_.asked.settings) {
      POSENC_ASSIGN_OR_RETURN(const bool placed, UsePositions({{*call_.asked.settings}}, rest));
      if (placed) return true;
    }
    if (UseBest(of_all, true, rest) || UseBest(whole_.explanations, true, rest)) return true;
    bool first = true;
    std::vector<Explanation> all;
    for (const Box& box : BoxesOf(call_.evidence, *rest)) {
      if (IsWhole(box) && first) {  // explained before
        *measured = Measurement(whole_);
        first = false;
        continue;
      }
      POSENC_ASSIGN_OR_RETURN(std::vector<Explanation> candidates, ExplainBox(box, first ? measured : nullptr));
      first = false;
      if (UseBest(candidates, true, rest)) return true;
      std::move(candidates.begin(), candidates.end(), std::back_inserter(all));
    }
    if (UseBest(all, false, rest) || UseBest(whole_.explanations, false, rest)) return true;
    if (!call_.asked.settings) return false;
    return UsePositions(OptionsOf(call_.asked, *call_.asked.settings->rotary_dim, call_.evidence.tokens), rest);
  }

  // Adds faults that explain rows by other positions than the stated ones, under the option that explains the most, and
  // removes their rows. Of several options, each must explain nearly all rows.
  absl::StatusOr<bool> UsePositions(const std::vector<Option>& options, RowSet* rest) {
    if (reference_ == nullptr) return false;
    std::vector<Placement> best;
    int64_t most = 0;
    for (const Option& option : options) {
      POSENC_ASSIGN_OR_RETURN(std::vector<Placement> found, ExplainByPositions(call_, *reference_, option, *rest));
      int64_t count = 0;
      for (const Placement& one : found) count += CountOf(one.rows);
      if (options.size() > 1 && 10 * count < 9 * CountOf(*rest)) continue;
      if (count > most) most = count, best = std::move(found);
    }
    JoinHeads(&best);
    std::stable_sort(best.begin(), best.end(),
                     [](const Placement& a, const Placement& b) { return CountOf(a.rows) > CountOf(b.rows); });
    for (Placement& one : best) {
      Fault fault = maker_.Make(one.explanation, {}, one.rows);
      maker_.SetPositions(std::move(one.positions), &fault);
      found_.faults.push_back(std::move(fault));
      JoinWithTheSame();
      AddRows(Without(one.explanation.proof.misfits->undefined, Complement(one.rows)), &found_.undefined);
      *rest = Without(*rest, one.rows);
      found_.parts.push_back(one.explanation);
    }
    return !best.empty();
  }

  // Makes one of the placements of single heads that are at their own index.
  static void JoinHeads(std::vector<Placement>* placements) {
    const auto first = std::stable_partition(placements->begin(), placements->end(),
                                             [](const Placement& one) { return !one.at_its_head; });
    if (placements->end() - first < 3) return;
    for (auto one = first + 1; one != placements->end(); ++one) AddRows(one->rows, &first->rows);
    first->explanation.candidate.departures = {
        {"POSITIONS", "positions are the heads' indices: the rotation ran along the axis of the heads"}};
    first->positions.clear();
    placements->erase(first + 1, placements->end());
  }

  // Explanations of the box that fit it, compared with all elements. Writes the measurements of the box to `measured`,
  // which may be null.
  absl::StatusOr<std::vector<Explanation>> ExplainBox(const Box& box, std::string* measured) const {
    const Asked asked = call_.asked.Of(box.operands);
    POSENC_ASSIGN_OR_RETURN(SampleFindings findings, ExplainSample(Sample(call_.evidence, box), asked, call_.tolerance,
                                                                   call_.limits, call_.pool, call_.cancelled));
    if (measured != nullptr) *measured = Measurement(findings);
    std::vector<Explanation> candidates;
    for (Explanation& one : findings.explanations) {
      if (!one.fits() || IsAsMeasured(one)) continue;
      if (one.candidate.departures.empty() && !NameNarrowTables(&one)) continue;
      if (candidates.size() >= kComplete && one.sample_digest != candidates[0].sample_digest) continue;
      Extend(box, &one);
      POSENC_RETURN_IF_ERROR(call_.CompareWithAll(&one));
      if (one.complete) candidates.push_back(std::move(one));
    }
    return candidates;
  }

  // Turns "what was asked for, with tables of the tensor's type" into a fault of its part, if the reference has wider
  // tables. Returns false and changes nothing for other explanations.
  bool NameNarrowTables(Explanation* asked) const {
    const DType type = asked->variant.compute[0];
    if (reference_ == nullptr || (type != DType::kBF16 && type != DType::kFP16)) return false;
    if (asked->variant.precision.table_dtype != TableDtype::kTensor) return false;
    if (reference_->variant.precision.table_dtype == TableDtype::kTensor) return false;
    asked->variant.precision = reference_->variant.precision;
    asked->candidate.fault = type == DType::kBF16 ? TableFault::kTableBF16 : TableFault::kTableFP16;
    asked->candidate.departures = {FaultDeparture(asked->candidate.fault)};
    return true;
  }

  // Adds the fault of the explanation that explains the most of the rows, and removes its rows. Of equals it takes the
  // first, or one that gives clearly more of their bits by numbers that are as round.
  // `whole_heads`: it must explain a head of a batch row entirely; else runs of tokens.
  bool UseBest(const std::vector<Explanation>& explanations, bool whole_heads, RowSet* rest) {
    const Explanation* best = nullptr;
    int64_t most = 0;
    uint64_t least = 0;  // unequal elements of the best, in the rows that it explains
    RowSet rows;
    for (const Explanation& one : explanations) {
      if (!one.complete || !one.proof.misfits || IsAsMeasured(one) || call_.AllDepartures(one).empty()) continue;
      RowSet explained = ExplainedRows(call_.evidence, *rest, one.proof.misfits->rows, whole_heads);
      // Rows that should be NaN are no reason to take it.
      const RowSet& undefined = one.proof.misfits->undefined;
      const int64_t count = CountOf(undefined.empty() ? explained : Without(explained, undefined));
      if (count == 0 || !ComesNearer(one, explained)) continue;
      const uint64_t unequal = CountUnequal(one, explained);
      const bool nearer =
          count == most && BitsCount(call_) && 2 * unequal < least && one.candidate.digits <= best->candidate.digits;
      if (count > most || nearer) best = &one, most = count, least = unequal, rows = std::move(explained);
    }
    if (best == nullptr) return false;
    rows = WithBits(call_, *best, std::move(rows));
    Fault fault = maker_.Make(*best, explanations, rows);
    if (fault.values < 2 * fault.free_values) return false;  // it would explain itself
    found_.faults.push_back(std::move(fault));
    JoinWithTheSame();
    AddRows(Without(best->proof.misfits->undefined, Complement(rows)), &found_.undefined);
    *rest = Without(*rest, rows);
    if (!best->fits()) found_.parts.push_back(*best);
    return true;
  }

  // Makes one of parts that differ by their operand only.
  void JoinOperands(std::vector<Part>* parts) const {
    for (size_t n = 0; n < parts->size(); ++n) {
      for (size_t m = n + 1; m < parts->size(); ++m) {
        Part like = (*parts)[m];
        like.operands = (*parts)[n].operands;
        if (!(like == (*parts)[n]) || like.operands.size() != 1 || (*parts)[m].operands == like.operands) continue;
        (*parts)[n].operands.clear();
        parts->erase(parts->begin() + static_cast<int64_t>(m));
        break;
      }
    }
  }

  // Adds the last fault's parts to an earlier fault with the same departures.
  void JoinWithTheSame() {
    Fault& last = found_.faults.back();
    for (Fault& fault : found_.faults) {
      if (&fault == &last || fault.sentence != last.sentence) continue;
      fault.parts.insert(fault.parts.end(), last.parts.begin(), last.parts.end());
      JoinOperands(&fault.parts);
      for (MeasuredPositions& positions : last.positions) fault.positions.push_back(std::move(positions));
      fault.values += last.values;
      found_.faults.pop_back();
      return;
    }
  }

  // True if the explanation gives clearly more bits of these rows than the reference does, and the more so the more it
  // departs. Near position 0 another small departure may be within the tolerance, too.
  bool ComesNearer(const Explanation& explanation, const RowSet& rows) const {
    if (reference_ == nullptr || !BitsCount(call_)) return true;
    const uint64_t times = call_.AllDepartures(explanation).size() > 1 ? 8 : 2;
    return times * CountUnequal(explanation, rows) <= CountUnequal(*reference_, rows);
  }

  bool IsWhole(const Box& box) const {
    if (box.operands.size() != call_.evidence.operands.size()) return false;
    for (size_t n = 0; n < box.operands.size(); ++n) {
      if (static_cast<int64_t>(box.heads[n].size()) != call_.evidence.operands[n].heads) return false;
    }
    return static_cast<int64_t>(box.tokens.size()) == call_.evidence.tokens.count();
  }

  // Makes an explanation of some operands one of all; the others are as asked for.
  void Extend(const Box& box, Explanation* explanation) const {
    Candidate& candidate = explanation->candidate;
    std::vector<int64_t> offsets = call_.asked.offsets;
    offsets.resize(call_.evidence.operands.size());
    std::array<ScaledAs, 2> scaled_as = {};
    std::vector<DType> compute;
    for (const Rows& rows : call_.evidence.operands) compute.push_back(rows.before_dtype);
    for (size_t n = 0; n < box.operands.size(); ++n) {
      offsets[box.operands[n]] = candidate.offsets[n];
      scaled_as[box.operands[n]] = candidate.scaled_as[n];
      compute[box.operands[n]] = explanation->variant.compute[n];
    }
    candidate.offsets = std::move(offsets);
    candidate.scaled_as = scaled_as;
    explanation->variant.compute = std::move(compute);
  }

  // The nearest explanation, without misfits, that gives all bits, or by one departure without a fitted number comes so
  // much nearer than the reference that it is no accident. `distance`: of an explanation.
  template <class Function>
  const Explanation* Nearest(const std::vector<Explanation>& explanations, const RowSet& rows,
                             const Function& distance) const {
    constexpr uint64_t kLeast = 32;  // elements that are not as expected
    constexpr double kRatio = 0.25;
    if (CountUnequal(*reference_, rows) < kLeast) return nullptr;
    const Explanation* nearest = nullptr;
    double least = distance(*reference_);
    for (const Explanation& one : explanations) {
      if (!one.complete || !one.proof.misfits || IsAsMeasured(one)) continue;
      const std::vector<Departure> departures = call_.AllDepartures(one);
      const bool rounds_frequencies = std::all_of(departures.begin(), departures.end(),
                                                  [](const Departure& departure) { return IsRecipe(departure.code); });
      if (rounds_frequencies || !IsEmpty(Without(rows, Complement(one.proof.misfits->rows)))) continue;
      const bool simple = one.candidate.free_values == 0 && departures.size() == 1;
      const double found = distance(one);
      const bool much_nearer = found == 0 || (simple && BitsCount(call_) && found < kRatio * distance(*reference_));
      if (much_nearer && found < least) nearest = &one, least = found;
    }
    return nearest;
  }

  const RotationCall& call_;
  const SampleFindings& whole_;
  const Explanation* const reference_;
  const FaultMaker maker_;
  FoundFaults found_;
};

}  // namespace

std::string Measurement(const SampleFindings& findings) {
  const bool finite = std::any_of(findings.census.begin(), findings.census.end(),
                                  [](const ElementCensus& census) { return census.finite_rows > 0; });
  if (!finite) return "the rows have elements that are not finite";
  if (!findings.changed()) return "the rows are unchanged";
  if (findings.readings.empty() || findings.readings[0].norm_residual > kNotARotation) {
    return "no pairing keeps the norms of pairs";
  }
  if (findings.readings[0].angles.scatter > kNotARotation) return "heads of one token rotate by different angles";
  const bool regular = std::any_of(findings.explanations.begin(), findings.explanations.end(),
                                   [](const Explanation& e) { return IsAsMeasured(e) && e.residual <= kWellMatched; });
  return regular ? "pairs rotate by frequencies that match no known settings; they are measured"
                 : "pairs rotate by angles that no known settings give at these positions";
}

absl::StatusOr<FoundFaults> FindFaults(const RotationCall& call, const SampleFindings& whole,
                                       const Explanation* reference) {
  return FaultFinder(call, whole, reference).Explain();
}

absl::StatusOr<FoundFaults> FindNearerFault(const RotationCall& call, const SampleFindings& whole,
                                            const Explanation& reference) {
  return FaultFinder(call, whole, &reference).ExplainNearer();
}

}  // namespace posenc::diagnose
