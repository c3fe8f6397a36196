#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/describe_rows.h"
#include "posenc/diagnose/position_faults.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kComplete = 4;  // candidates of a part that are compared with all elements
constexpr size_t kMostFaults = 4;

RowSet EveryRow(const Evidence& evidence) { return Complement(NoRows(evidence)); }

// True for departures that change every pair that turns.
bool IsOfAllPairs(const std::vector<Departure>& departures) {
  static constexpr std::string_view kCodes[] = {
      "PAIRING",        "ROTARY_OFFSET",     "DIRECTION",        "POSITIONS",         "NOT_ROTATED",
      "ROTATED_TWICE",  "COS_SIN_EXCHANGED", "ATTENTION_FACTOR", "POSITIONS_ROUNDED", "ROUNDING",
      "TABLES_ROUNDED", "ANGLES_ROUNDED",    "ROTARY_WIDTH"};
  return std::any_of(departures.begin(), departures.end(), [](const Departure& departure) {
    return std::find(std::begin(kCodes), std::end(kCodes), departure.code) != std::end(kCodes);
  });
}

class FaultFinder {
 public:
  FaultFinder(const RotationCall& call, const SampleFindings& whole, const Explanation* reference)
      : call_(call), whole_(whole), reference_(reference) {}

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
      AddUnexplained(measured, rest);
    }
    if (!IsEmpty(unclear)) {
      AddUnexplained("positions are too large for float32 phases, and nothing gives the same bits", unclear);
    }
    return std::move(found_);
  }

  // Explains what is within the tolerance: by a fault of the heads that are less equal than others, or else of all
  // rows.
  absl::StatusOr<FoundFaults> ExplainNearer() {
    if (const RowSet unequal = UnequalHeads(); !IsEmpty(unequal)) {
      const Box box = BoxesOf(call_.evidence, unequal)[0];
      POSENC_ASSIGN_OR_RETURN(const std::vector<Explanation> candidates, ExplainBox(box, nullptr));
      const auto count = [&](const Explanation& one) { return static_cast<double>(CountUnequal(one, unequal)); };
      if (const Explanation* nearer = Nearest(candidates, unequal, count)) {
        AddFault(*nearer, candidates, unequal);
        return std::move(found_);
      }
    }
    const RowSet every = EveryRow(call_.evidence);
    const auto mean_log = [](const Explanation& one) { return one.proof.comparison.mean_log(); };
    const Explanation* nearer = Nearest(whole_.explanations, every, mean_log);
    if (nearer != nullptr) AddFault(*nearer, whole_.explanations, every);
    return std::move(found_);
  }

 private:
  void AddUnexplained(std::string sentence, const RowSet& rows) {
    Fault fault{.sentence = std::move(sentence)};
    fault.parts = PartsOf(call_.evidence, rows, RowSet(rows));
    SetPairs(&fault, rows);
    found_.faults.push_back(std::move(fault));
  }

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
      AddFault(one.explanation, {}, one.rows);
      if (auto twin = TwinOf(one.positions)) found_.faults.back().alternatives.push_back({*std::move(twin)});
      found_.faults.back().positions = std::move(one.positions);
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
          count == most && BitsCount() && 2 * unequal < least && one.candidate.digits <= best->candidate.digits;
      if (count > most || nearer) best = &one, most = count, least = unequal, rows = std::move(explained);
    }
    if (best == nullptr) return false;
    rows = WithBits(*best, std::move(rows));
    AddFault(*best, explanations, rows);
    Fault& fault = found_.faults.back();
    if (fault.values < 2 * fault.free_values) {  // it would explain itself
      found_.faults.pop_back();
      return false;
    }
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

  // The rows without the heads in which the explanation misses at least a bit of each row, if there are heads in which
  // it gives nearly all bits: it is only near what happened in the others.
  RowSet WithBits(const Explanation& explanation, RowSet rows) const {
    if (!BitsCount()) return rows;
    constexpr int64_t kNearly = 8;  // rows for each element that is missed
    RowSet kept = rows;
    bool any = false;
    EachHead([&](size_t n, const std::vector<int64_t>& head) {
      int64_t count = 0, unequal = 0;
      for (const int64_t row : head) {
        if (!rows[n][row]) continue;
        ++count;
        unequal += explanation.proof.misfits->unequal[n][row];
      }
      any |= count > 0 && kNearly * unequal <= count;
      if (count == 0 || unequal < count) return;
      for (const int64_t row : head) kept[n][row] = 0;
    });
    return any ? kept : rows;
  }

  // True if the explanation gives clearly more bits of these rows than the reference does, and the more so the more it
  // departs. Near position 0 another small departure may be within the tolerance, too.
  bool ComesNearer(const Explanation& explanation, const RowSet& rows) const {
    if (reference_ == nullptr || !BitsCount()) return true;
    const uint64_t times = call_.AllDepartures(explanation).size() > 1 ? 8 : 2;
    return times * CountUnequal(explanation, rows) <= CountUnequal(*reference_, rows);
  }

  // Equal bits of wide types say nothing, because phases round otherwise.
  bool BitsCount() const { return RoundingOf(call_.NarrowestAfter()) > RoundingOf(DType::kFP32); }

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

  void AddFault(const Explanation& explanation, const std::vector<Explanation>& others, const RowSet& rows) {
    Fault fault{.departures = call_.AllDepartures(explanation), .free_values = explanation.candidate.free_values};
    const double shift = explanation.candidate.position_shift;
    for (Departure& departure : fault.departures) {
      if (departure.code != "POSITIONS" || shift == 0 || IsEmpty(Complement(rows))) continue;
      departure.message =
          fmt::format("positions are {} too {}", Short(std::fabs(shift)), shift > 0 ? "large" : "small");
    }
    fault.sentence = Sentence(fault.departures);
    constexpr size_t kMostAlternatives = 3;
    for (const std::vector<Departure>& alias : explanation.candidate.aliases) {
      const bool one_too = fault.departures.size() == 1 && fault.alternatives.size() < kMostAlternatives;
      const auto same = [text = Sentence(alias)](const auto& known) { return Sentence(known) == text; };
      if (!one_too || same(fault.departures)) continue;
      if (std::none_of(fault.alternatives.begin(), fault.alternatives.end(), same)) fault.alternatives.push_back(alias);
    }
    for (const Explanation& other : others) {
      if (&other == &explanation || other.sample_digest != explanation.sample_digest || IsAsMeasured(other)) continue;
      if (other.complete && explanation.complete && other.proof.digest != explanation.proof.digest) continue;
      const std::vector<Departure>& departures = other.candidate.departures;
      if (departures.empty() || departures.size() > explanation.candidate.departures.size()) continue;
      const auto same = [text = Sentence(departures)](const auto& known) { return Sentence(known) == text; };
      if (same(fault.departures) || std::any_of(fault.alternatives.begin(), fault.alternatives.end(), same)) continue;
      if (fault.alternatives.size() < kMostAlternatives) fault.alternatives.push_back(departures);
    }
    if (auto twin = TwinOf(explanation.candidate)) fault.alternatives.push_back({*std::move(twin)});
    AddRanges(explanation.candidate.settings, call_.limits, &fault.departures);
    fault.sentence = Sentence(fault.departures);
    // Where positions were measured, other tokens are as stated: the fault is not hidden there.
    const RowSet widened = Widened(explanation, rows);
    fault.parts = PartsOf(call_.evidence, widened, explanation.candidate.positions ? widened : Fitting(explanation));
    SetPairs(&fault, rows);
    found_.faults.push_back(std::move(fault));
  }

  // Frequencies that are a multiple of the expected ones are positions that are.
  std::optional<Departure> TwinOf(const Candidate& candidate) const {
    const bool only = candidate.departures.size() == 1 && !candidate.positions && candidate.fault == TableFault::kNone;
    if (reference_ == nullptr || !only || call_.evidence.tokens.axes() > 1 ||
        candidate.departures[0].code == "POSITIONS") {
      return std::nullopt;
    }
    const auto frequencies = [&](const Candidate& of) {
      return PlannedFrequencies({of.settings, of.seq_len}, 0, call_.limits);
    };
    const std::vector<double> found = frequencies(candidate), wanted = frequencies(reference_->candidate);
    if (found.empty() || found.size() != wanted.size() || wanted[0] == 0) return std::nullopt;
    const double ratio = found[0] / wanted[0];
    for (size_t k = 0; k < found.size(); ++k) {
      if (!(std::fabs(found[k] - ratio * wanted[k]) <= 1e-9 * std::fabs(found[k]))) return std::nullopt;
    }
    if (std::fabs(ratio - 1) < 1e-6 || ratio <= 0) return std::nullopt;
    return Departure{"POSITIONS", ratio > 1 ? fmt::format("positions were multiplied by {}", Short(ratio))
                                            : fmt::format("positions were divided by {}", Short(1 / ratio))};
  }

  // Positions that are a multiple of the stated ones are frequencies that are.
  std::optional<Departure> TwinOf(const std::vector<MeasuredPositions>& positions) const {
    if (positions.size() != 1 || positions[0].tokens.size() < 2) return std::nullopt;
    const MeasuredPositions& all = positions[0];
    const double ratio = all.measured[0] / all.stated[0];
    for (size_t n = 0; n < all.tokens.size(); ++n) {
      if (!(all.measured[n] == ratio * all.stated[n]) || ratio == 0) return std::nullopt;
    }
    const auto* p = std::get_if<RopeParameters>(&call_.asked.settings->frequencies);
    if (p != nullptr && p->rope_type == "linear" && p->factor == ratio) return ScalingMissing(*p);
    return Departure{"SCALING_TYPE", fmt::format("frequencies are {} times the expected ones", Short(ratio))};
  }

  // The rows, and those of other heads in which the reference is within the tolerance, but the explanation gives most
  // of the bits that the reference does not, in the same tokens.
  RowSet Widened(const Explanation& explanation, RowSet rows) const {
    constexpr uint64_t kTimes = 2, kFew = 8;  // few must all be explained
    if (reference_ == nullptr || !BitsCount()) return rows;
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;  // tokens of a batch row
    EachHead([&](size_t n, const std::vector<int64_t>& head) {
      for (size_t t = 0; t < head.size(); ++t) {
        if (!rows[n][head[t]]) continue;
        first = std::min(first, static_cast<int64_t>(t));
        last = std::max(last, static_cast<int64_t>(t));
      }
    });
    EachHead([&](size_t n, const std::vector<int64_t>& head) {
      const Misfits &ours = *explanation.proof.misfits, &asked = *reference_->proof.misfits;
      uint64_t found = 0, expected = 0;
      const int64_t end = std::min(last + 1, static_cast<int64_t>(head.size()));
      for (int64_t t = first; t < end; ++t) {
        if (ours.rows[n][head[t]] || (asked.rows[n][head[t]] && !rows[n][head[t]])) return;
        found += ours.unequal[n][head[t]], expected += asked.unequal[n][head[t]];
      }
      if (kTimes * found > expected || (expected < kFew && found > 0)) return;
      for (int64_t t = first; t < end; ++t) rows[n][head[t]] |= asked.unequal[n][head[t]] > ours.unequal[n][head[t]];
    });
    return rows;
  }

  // Calls visit(operand, its rows) for every head of every batch row.
  template <class Visitor>
  void EachHead(const Visitor& visit) const {
    for (size_t n = 0; n < call_.evidence.operands.size(); ++n) {
      const Rows& operand = call_.evidence.operands[n];
      const BatchRows batch(call_.evidence, operand);
      for (const int64_t b : batch.filled()) {
        InterruptionPoint();
        for (int64_t h = 0; h < operand.heads; ++h) {
          std::vector<int64_t> rows;
          for (int64_t t = batch.Begin(b); t < batch.End(b); ++t) rows.push_back(t * operand.heads + h);
          visit(n, rows);
        }
      }
    }
  }

  // Rows that the explanation explains, and not worse than the reference does.
  RowSet Fitting(const Explanation& explanation) const {
    RowSet fitting = Complement(explanation.proof.misfits->rows);
    if (reference_ == nullptr) return fitting;
    for (size_t n = 0; n < fitting.size(); ++n) {
      for (size_t row = 0; row < fitting[n].size(); ++row) {
        const int found = explanation.proof.misfits->unequal[n][row],
                  expected = reference_->proof.misfits->unequal[n][row];
        fitting[n][row] &= found <= expected + expected / 4 + 1;
      }
    }
    return fitting;
  }

  // Sets the pairs in which the reference is wrong in these rows, and counts the values that differ.
  void SetPairs(Fault* fault, const RowSet& rows) const {
    if (reference_ == nullptr) return;
    const auto proof = Prove(reference_->candidate, reference_->variant, call_.evidence, call_.limits, call_.pool,
                             call_.cancelled, &call_.tolerance, &rows);
    if (!proof.ok()) return;
    const int64_t width = *reference_->candidate.settings.rotary_dim;
    const bool partly = !IsOfAllPairs(fault->departures);
    for (Part& part : fault->parts) {
      std::vector<uint8_t> wrong(width / 2);
      for (size_t n = 0; n < call_.evidence.operands.size(); ++n) {
        if (!part.operands.empty() && part.operands[0] != call_.evidence.operands[n].which) continue;
        const std::vector<uint8_t>& elements = proof->misfits->within_row[n];
        const PairLayout layout = LayoutOf(reference_->candidate, n);
        for (int64_t k = 0; k < width / 2; ++k) {
          wrong[k] |= elements[layout.First(layout.output, k)] | elements[layout.Second(layout.output, k)];
        }
      }
      int64_t tokens = 0;
      for (size_t n = 0; n < call_.evidence.operands.size(); ++n) {
        const int64_t heads = call_.evidence.operands[n].heads;
        int64_t here = 0;
        for (int64_t token = 0; token < call_.evidence.operands[n].tokens(); ++token) {
          const auto row = proof->misfits->rows[n].begin() + token * heads;
          here += std::find(row, row + heads, 1) != row + heads;
        }
        tokens = std::max(tokens, here);
      }
      fault->values = std::max(fault->values, tokens * std::count(wrong.begin(), wrong.end(), 1));
      if (partly) part.pairs = Ranges(wrong);
    }
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
      const bool rounds_frequencies = std::all_of(departures.begin(), departures.end(), [](const Departure& departure) {
        return departure.code == "THETA_SCALE_ROUNDED" || departure.code == "RECURRENCE";
      });
      if (rounds_frequencies || !IsEmpty(Without(rows, Complement(one.proof.misfits->rows)))) continue;
      const bool simple = one.candidate.free_values == 0 && departures.size() == 1;
      const double found = distance(one);
      const bool much_nearer = found == 0 || (simple && BitsCount() && found < kRatio * distance(*reference_));
      if (much_nearer && found < least) nearest = &one, least = found;
    }
    return nearest;
  }

  static uint64_t CountUnequal(const Explanation& explanation, const RowSet& rows) {
    uint64_t count = 0;
    for (size_t n = 0; n < rows.size(); ++n) {
      for (size_t row = 0; row < rows[n].size(); ++row)
        count += rows[n][row] ? explanation.proof.misfits->unequal[n][row] : 0;
    }
    return count;
  }

  // The heads of batch rows in which clearly more elements are not equal than in all others; empty if there are none.
  RowSet UnequalHeads() const {
    constexpr double kMany = 0.5, kFew = 0.125;  // of the largest share
    RowSet unequal;
    double most = 0;
    const auto visit = [&](const auto& visitor) {  // visitor(unequal elements a row, operand, rows of the head)
      EachHead([&](size_t n, const std::vector<int64_t>& rows) {
        double count = 0;
        for (const int64_t row : rows) count += reference_->proof.misfits->unequal[n][row];
        visitor(count / static_cast<double>(rows.size()), n, rows);
      });
    };
    for (const auto& rows : reference_->proof.misfits->unequal) unequal.emplace_back(rows.size());
    visit([&](double share, size_t, const auto&) { most = std::max(most, share); });
    bool any_few = false, apart = true;
    visit([&](double share, size_t n, const std::vector<int64_t>& rows) {
      any_few |= share <= kFew * most;
      apart &= share <= kFew * most || share >= kMany * most;
      if (share < kMany * most) return;
      for (const int64_t row : rows) unequal[n][row] = 1;
    });
    if (any_few && apart) return unequal;
    for (std::vector<uint8_t>& rows : unequal) std::fill(rows.begin(), rows.end(), 0);
    return unequal;
  }

  const RotationCall& call_;
  const SampleFindings& whole_;
  const Explanation* const reference_;
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
