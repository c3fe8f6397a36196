#include "posenc/diagnose/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/diagnose/candidate_table.h"
#include "posenc/diagnose/departures.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kCandidates = 24;
constexpr double kSameScaling = 2e-6;  // relative error of float32 attention factors

// An option's frequencies in exact arithmetic.
struct Evaluated {
  Frequency frequency;
  double attention_scaling;
  bool by_sequence;  // they differ by sequence; these are the first's
};

absl::StatusOr<Evaluated> Evaluate(const Option& option, const Tokens& tokens, const Limits& limits) {
  Candidate candidate{.settings = option.settings,
                      .seq_len = option.seq_len,
                      .exchanged_axes = option.exchanged_axes,
                      .fault = option.fault};
  POSENC_ASSIGN_OR_RETURN(Effective effective, EffectiveSettings(candidate, Frequencies::kExact, tokens, limits));
  POSENC_ASSIGN_OR_RETURN(const Rotary rotary,
                          Rotary::Create(std::move(effective.settings), Frequencies::kExact, limits));
  if (rotary.axes() > tokens.axes()) return absl::FailedPreconditionError("positions have fewer axes");
  int64_t seq_len = option.seq_len.value_or(0);
  if (rotary.NeedsSeqLen() && seq_len == 0) {
    if (tokens.seq_len.empty()) return absl::FailedPreconditionError("no scaling length was given");
    seq_len = tokens.seq_len[0];
  }
  POSENC_ASSIGN_OR_RETURN(const auto plan, rotary.Plan(seq_len));
  return Evaluated{{plan->inv_freq, plan->axis},
                   plan->attention_scaling,
                   rotary.NeedsSeqLen() && !option.seq_len && tokens.seq_len.size() > 1};
}

// Copy of `all` in which only the first sequence's tokens have weight.
Angles FirstSequence(const Angles& all, const Tokens& tokens) {
  Angles angles = all;
  std::fill(angles.weight.begin() + tokens.bounds[1] * angles.pairs, angles.weight.end(), 0.0);
  return angles;
}

// Attention scalings within `tolerance` of the measured one: the settings' own (absent) and known mistakes, else
// measured.
std::vector<std::optional<double>> Scalings(const Evaluated& plan, const Asked& asked, double measured,
                                            double tolerance) {
  const double own = plan.attention_scaling;
  const auto fits = [&](double a) { return std::fabs(measured / a - 1) <= tolerance; };
  std::vector<std::optional<double>> scalings;
  if (fits(own) || own == 0) scalings.push_back(std::nullopt);
  std::vector<double> others = {1, own * own};
  if (asked.settings) {
    if (const auto* p = std::get_if<RopeParameters>(&asked.settings->frequencies); p != nullptr && p->factor) {
      const double s = *p->factor;
      if (s > 1) others.push_back(0.1 * std::log(s) + 1);
      if (s > 1 && p->mscale) others.push_back(0.1 * *p->mscale * std::log(s) + 1);
    }
  }
  for (double other : others) {
    if (other != own && fits(other)) scalings.push_back(other);
  }
  if (scalings.empty() && own != 0) {
    const double round = own * Snap(measured / own, tolerance);
    if (fits(round)) scalings.push_back(round);
  }
  if (scalings.empty()) scalings.push_back(measured);
  return scalings;
}

bool SameXpos(const std::optional<Xpos>& a, const std::optional<Xpos>& b) {
  if (!a || !b) return !a && !b;
  return a->scale_base == b->scale_base && a->centre == b->centre;
}

bool SameCandidate(const Candidate& a, const Candidate& b, const Frequency& fa, const Frequency& fb, double scaling_a,
                   double scaling_b) {
  return a.settings.input_pairing == b.settings.input_pairing &&
         a.settings.output_pairing == b.settings.output_pairing &&
         a.settings.half_split_parts == b.settings.half_split_parts && a.offsets == b.offsets &&
         SameXpos(a.settings.xpos, b.settings.xpos) && a.direction == b.direction &&
         a.position_shift == b.position_shift && a.fault == b.fault && a.seq_len == b.seq_len &&
         fa.inv_freq == fb.inv_freq && fa.axis == fb.axis && scaling_a == scaling_b;
}

class Finder {
 public:
  Finder(const Evidence& sample, const std::vector<Reading>& readings, const Asked& asked,
         const std::vector<Option>* only, const Limits& limits, const Cancellation& cancelled)
      : sample_(sample),
        readings_(readings),
        asked_(asked),
        only_(only),
        limits_(limits),
        cancelled_(cancelled),
        rounding_(RoundingOf(sample)) {
    const double first = *std::min_element(sample.tokens.positions[0].begin(), sample.tokens.positions[0].end());
    if (first != 0) shifts_ = {-first, 1 - first};
    if (!asked.settings) return;
    if (const auto plan = Evaluate({*asked.settings}, sample.tokens, limits); plan.ok()) {
      asked_scaling_ = plan->attention_scaling;
    }
  }

  std::vector<Scored> Find() {
    TryAll();
    std::vector<Scored> best;
    const double limit = found_.empty() ? 0 : 100 * found_[0].scored.residual + 1e-4;
    for (const Entry& entry : found_) {
      if (best.size() < kCandidates && entry.scored.residual <= limit) best.push_back(entry.scored);
    }
    return best;
  }

 private:
  struct Entry {
    Scored scored;
    Frequency frequency;
    double scaling;
    bool departs;  // of the frequencies
  };

  void TryAll() {
    for (size_t n = 0; n < readings_.size(); ++n) {
      const Reading& reading = readings_[n];
      const int64_t width = reading.layouts[0].rotary_dim;
      if (only_ != nullptr) {
        for (const Option& option : *only_) {
          if (*option.settings.rotary_dim == width) Try(n, option);
        }
        continue;
      }
      for (const Option& option : OptionsOf(asked_, width, sample_.tokens)) Try(n, option);
      if (n > 0 && asked_.settings) continue;  // only the likeliest layout tries measured frequencies
      for (const Option& option :
           MeasuredOptions(asked_, width, reading.frequencies, reading.angles.attention_scaling)) {
        if (std::holds_alternative<RopeParameters>(option.settings.frequencies) || !AreKnown(n)) Try(n, option);
      }
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Entry& a, const Entry& b) { return a.scored.residual < b.scored.residual; });
  }

  // True if an option that was tried has the reading's frequencies, within their uncertainty and other systems' errors.
  // The frequencies as measured would fit even better, but only by noise.
  bool AreKnown(size_t n) const {
    const std::vector<MeasuredFrequency>& pairs = readings_[n].frequencies.pairs;
    return std::any_of(found_.begin(), found_.end(), [&](const Entry& entry) {
      if (entry.scored.reading != n) return false;
      const double direction = entry.scored.candidate.direction == Direction::kForward ? 1 : -1;
      for (size_t k = 0; k < pairs.size(); ++k) {
        if (!std::isfinite(pairs[k].uncertainty)) continue;
        const double known = direction * entry.frequency.inv_freq[k];
        const double off = std::fabs(pairs[k].inv_freq - known);
        const bool same_axis =
            entry.frequency.axis.empty() ? pairs[k].axis == 0 : entry.frequency.axis[k] == pairs[k].axis;
        if (!same_axis || off > std::max(kRecipe * std::fabs(known), 8 * pairs[k].uncertainty)) return false;
      }
      return true;
    });
  }

  void Try(size_t n, const Option& option) {
    if (!cancelled_().ok()) return;
    const Reading& reading = readings_[n];
    const auto plan = Evaluate(option, sample_.tokens, limits_);
    if (!plan.ok() || static_cast<int64_t>(plan->frequency.inv_freq.size()) != reading.angles.pairs) return;
    std::optional<Angles> first;
    if (plan->by_sequence) first = FirstSequence(reading.angles, sample_.tokens);
    const Match match = FindMatch(first ? *first : reading.angles, sample_.tokens, plan->frequency, shifts_);
    if (!std::isfinite(match.residual)) return;
    double attention_scaling = reading.angles.attention_scaling;
    if (asked_.DirectionOf(match.direction) == Direction::kInverse) attention_scaling = 1 / attention_scaling;
    for (const auto& scaling : Scalings(*plan, asked_, attention_scaling, std::max(4 * rounding_, kSameScaling))) {
      Add(n, option, *plan, match, scaling);
      if (!option.settings.xpos || reading.scales) continue;
      Option without = option;
      without.settings.xpos.reset();
      Add(n, without, *plan, match, scaling);
    }
  }

  // Sets scale and direction. With a scale, the transpose (keeps it) and the inverse (removes it) differ.
  void SetScales(const Scales& scales, Candidate* candidate) const {
    candidate->settings.xpos = scales.xpos;
    *candidate->settings.xpos->centre += candidate->position_shift;
    int own = 1;
    if (candidate->direction != Direction::kForward) {
      own = scales.signs[0] != 0 ? scales.signs[0] : scales.signs[1];
      candidate->direction = own < 0 ? Direction::kInverse : Direction::kTranspose;
      if (asked_.direction != Direction::kForward && asked_.direction != candidate->direction) {
        candidate->departures = {{"DIRECTION", own < 0 ? "the inverse was applied, but the transpose was requested"
                                                       : "the transpose was applied, but the inverse was requested"}};
      }
    }
    for (size_t n = 0; n < scales.signs.size(); ++n) {
      const int sign = scales.signs[n];
      candidate->scaled_as[n] = sign == 0 ? ScaledAs::kNone : sign == own ? ScaledAs::kItself : ScaledAs::kOther;
      for (Departure& departure : ScaleDepartures(sample_.operands[n].which, candidate->scaled_as[n])) {
        candidate->departures.push_back(std::move(departure));
      }
    }
  }

  void Add(size_t n, const Option& option, const Evaluated& plan, const Match& match, std::optional<double> scaling) {
    const Reading& reading = readings_[n];
    Entry entry{{.reading = n, .residual = match.residual},
                plan.frequency,
                scaling.value_or(plan.attention_scaling),
                !option.departures.empty()};
    Candidate& candidate = entry.scored.candidate;
    candidate.settings = option.settings;
    SetLayout(reading, &candidate);
    candidate.direction = asked_.DirectionOf(match.direction);
    candidate.position_shift = match.shift;
    candidate.attention_scaling = scaling;
    candidate.seq_len = option.seq_len;
    candidate.exchanged_axes = option.exchanged_axes;
    candidate.fault = option.fault;
    candidate.free_values = option.free_values + (match.shift == 0 ? 0 : 1) + (scaling ? 1 : 0);
    candidate.digits = option.digits;
    if (reading.scales) SetScales(*reading.scales, &candidate);
    for (Entry& other : found_) {
      if (SameCandidate(candidate, other.scored.candidate, entry.frequency, other.frequency, entry.scaling,
                        other.scaling)) {
        const bool both_depart = other.departs && !option.departures.empty();
        if (both_depart) other.scored.candidate.aliases.push_back(option.departures);
        return;
      }
    }
    auto& departures = candidate.departures;
    const auto append = [&departures](const std::vector<Departure>& more) {
      departures.insert(departures.end(), more.begin(), more.end());
    };
    append(LayoutDepartures(asked_, reading, sample_));
    append(MatchDepartures(asked_, match, sample_.tokens));
    append(option.departures);
    append(XposDepartures(asked_, candidate.settings.xpos));
    if (option.fault != TableFault::kNone) departures.push_back(FaultDeparture(option.fault));
    // Compares with the option's own factor: a missing scaling implies that its attention factor is missing.
    const bool as_asked = scaling && asked_scaling_ && std::fabs(*scaling / *asked_scaling_ - 1) <= kSameScaling;
    if (asked_.settings && scaling && !as_asked) {
      departures.push_back(AttentionDeparture(asked_, *scaling, plan.attention_scaling));
    }
    found_.push_back(std::move(entry));
  }

  const Evidence& sample_;
  const std::vector<Reading>& readings_;
  const Asked& asked_;
  const std::vector<Option>* const only_;
  const Limits& limits_;
  const Cancellation& cancelled_;
  const double rounding_;
  std::vector<double> shifts_;
  std::optional<double> asked_scaling_;  // attention scaling that was asked for
  std::vector<Entry> found_;
};

}  // namespace

std::vector<Scored> FindCandidates(const Evidence& sample, const std::vector<Reading>& readings, const Asked& asked,
                                   const std::vector<Option>* only, const Limits& limits,
                                   const Cancellation& cancelled) {
  return Finder(sample, readings, asked, only, limits, cancelled).Find();
}

std::optional<Candidate> AskedCandidate(const Asked& asked) {
  if (!asked.settings) return std::nullopt;
  return Candidate{.settings = *asked.settings, .offsets = asked.offsets, .direction = asked.direction};
}

std::vector<Candidate> TableCandidates(const Evidence& sample, const std::vector<Reading>& readings,
                                       const Asked& asked) {
  std::vector<Candidate> candidates;
  const std::optional<Candidate> plain = AskedCandidate(asked);
  if (!plain || !std::holds_alternative<GivenTable>(plain->settings.frequencies)) return candidates;
  const double first = *std::min_element(sample.tokens.positions[0].begin(), sample.tokens.positions[0].end());
  for (const Reading& reading : readings) {
    const bool as_wide = reading.layouts[0].rotary_dim == *plain->settings.rotary_dim;
    if (reading.norm_residual > kNotARotation || !as_wide) continue;
    Candidate candidate = *plain;
    SetLayout(reading, &candidate);
    const std::vector<Departure> of_layout = LayoutDepartures(asked, reading, sample);
    for (double direction : {1.0, -1.0}) {
      for (double shift : {0.0, 1.0, -1.0, -first, 1 - first}) {
        candidate.direction = asked.DirectionOf(direction);
        candidate.position_shift = shift;
        candidate.departures = of_layout;
        for (Departure& departure : MatchDepartures(asked, {.direction = direction, .shift = shift}, sample.tokens)) {
          candidate.departures.push_back(std::move(departure));
        }
        if (!candidate.departures.empty()) candidates.push_back(candidate);
      }
    }
  }
  return candidates;
}

}  // namespace posenc::diagnose
