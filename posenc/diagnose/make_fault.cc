#include "posenc/diagnose/make_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/equal_bits.h"
#include "posenc/diagnose/pairs.h"

namespace posenc::diagnose {
namespace {

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

}  // namespace

Fault FaultMaker::Make(const Explanation& explanation, const std::vector<Explanation>& others,
                       const RowSet& rows) const {
  Fault fault{.departures = call_.AllDepartures(explanation), .free_values = explanation.candidate.free_values};
  const double shift = explanation.candidate.position_shift;
  for (Departure& departure : fault.departures) {
    if (departure.code != "POSITIONS" || shift == 0 || IsEmpty(Complement(rows))) continue;
    departure.message = fmt::format("positions are {} too {}", Short(std::fabs(shift)), shift > 0 ? "large" : "small");
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
  const RowSet widened = reference_ == nullptr ? rows : Widened(call_, *reference_, explanation, rows);
  fault.parts = PartsOf(call_.evidence, widened, explanation.candidate.positions ? widened : Fitting(explanation));
  SetPairs(&fault, rows);
  return fault;
}

void FaultMaker::SetPositions(std::vector<MeasuredPositions> positions, Fault* fault) const {
  if (auto twin = TwinOf(positions)) fault->alternatives.push_back({*std::move(twin)});
  fault->positions = std::move(positions);
}

Fault FaultMaker::Unexplained(std::string sentence, const RowSet& rows) const {
  Fault fault{.sentence = std::move(sentence)};
  fault.parts = PartsOf(call_.evidence, rows, RowSet(rows));
  SetPairs(&fault, rows);
  return fault;
}

// Frequencies that are a multiple of the expected ones are positions that are.
std::optional<Departure> FaultMaker::TwinOf(const Candidate& candidate) const {
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
std::optional<Departure> FaultMaker::TwinOf(const std::vector<MeasuredPositions>& positions) const {
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

// Rows that the explanation explains, and not worse than the reference does.
RowSet FaultMaker::Fitting(const Explanation& explanation) const {
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
void FaultMaker::SetPairs(Fault* fault, const RowSet& rows) const {
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

}  // namespace posenc::diagnose
