#include "posenc/diagnose/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "posenc/base/checks.h"

namespace posenc::diagnose {
namespace {

// Collects variations of the settings asked for, at one width.
class Collector {
 public:
  Collector(const Asked& asked, RotarySettings base, const Tokens& tokens, std::vector<Option>* options)
      : asked_(asked), base_(std::move(base)), tokens_(tokens), options_(*options) {}

  void Collect() {
    if (auto* p = std::get_if<RopeParameters>(&base_.frequencies)) {
      CollectParameters(*p);
    } else if (auto* axial = std::get_if<AxialRope>(&base_.frequencies)) {
      CollectAxial(*axial);
    }
    AddFault(TableFault::kInvFreqBF16);
    AddFault(TableFault::kInvFreqFP16);
  }

 private:
  template <class Change>
  Option& Add(const Change& change, Departure departure) {
    RotarySettings settings = base_;
    change(settings, std::get_if<RopeParameters>(&settings.frequencies));
    options_.push_back({.settings = std::move(settings), .departures = {std::move(departure)}});
    return options_.back();
  }
  template <class Change>
  Option& Add(const Change& change, std::string code, std::string message) {
    return Add(change, {std::move(code), std::move(message)});
  }
  void AddFault(TableFault fault) {
    options_.push_back({base_});
    options_.back().fault = fault;
  }

  void CollectParameters(const RopeParameters& p) {
    if (p.rope_type != "default") {
      Add([](RotarySettings& s, RopeParameters* q) { *q = Unscaled(*q), s.max_position_embeddings.reset(); },
          ScalingMissing(p));
    }
    if (p.rope_theta) CollectThetas(p);
    CollectLongrope(p);
    if (p.rope_type == "dynamic") CollectDynamic();
    if (p.rope_type == "yarn" || p.rope_type == "deepseek_yarn") CollectYarn(p);
    if (p.rope_type == "linear") {
      const double d = static_cast<double>(base_.rotary_dim.value_or(4));
      const double theta = d > 2 && p.rope_theta ? *p.rope_theta * std::pow(*p.factor, d / (d - 2)) : 10000;
      Add([theta](RotarySettings&, RopeParameters* q) { *q = Unscaled(*q), q->rope_theta = theta; }, "SCALING_TYPE",
          fmt::format("NTK-aware scaling (rope_theta {}) was applied instead of linear", Short(theta)));
      Add([](RotarySettings&, RopeParameters* q) { q->rope_type = "linear_positions"; }, "POSITIONS_DIVIDED",
          "positions were divided by the factor, not frequencies");
      Add([](RotarySettings&, RopeParameters* q) { q->factor = 1 / *q->factor; }, "FACTOR_INVERTED",
          "positions were multiplied by the factor, not divided");
    }
    if (p.rope_type == "llama3") CollectLlama3(p);
    CollectSections(p);
    CollectWidths(p);
    const auto full = base_.rotary_dim.value_or(0);
    const int64_t asked_dim = asked_.settings ? *asked_.settings->rotary_dim : full;
    if (asked_dim != full && p.rope_theta) {
      Add([&](RotarySettings&, RopeParameters* q) { q->frequency_dim = static_cast<double>(asked_dim); },
          "FREQUENCY_DIM", fmt::format("exponents were computed for {} dimensions, not {}", asked_dim, full));
    }
  }

  static RopeParameters Unscaled(const RopeParameters& p) {
    return {.rope_type = "default",
            .rope_theta = p.rope_theta,
            .frequency_dim = p.frequency_dim,
            .negate_angle = p.negate_angle,
            .mrope_section = p.mrope_section,
            .mrope_order = p.mrope_order};
  }

  void CollectThetas(const RopeParameters& p) {
    const double factor = p.factor.value_or(1);
    for (double theta : {10000.0, 500000.0, 1000000.0, *p.rope_theta * factor, *p.rope_theta / factor}) {
      if (theta == *p.rope_theta) continue;
      const std::string message =
          fmt::format("rope_theta {} was applied, {} {}", Short(theta), asked_.Wants(), Short(*p.rope_theta));
      Add([theta](RotarySettings&, RopeParameters* q) { q->rope_theta = theta; }, "ROPE_THETA", message);
      if (p.rope_type == "default") continue;
      Option& both = Add(
          [theta](RotarySettings& s, RopeParameters* q) {
            *q = Unscaled(*q), q->rope_theta = theta, s.max_position_embeddings.reset();
          },
          "ROPE_THETA", message);
      both.departures.push_back({"SCALING_MISSING", fmt::format("the {} scaling is missing", p.rope_type)});
    }
  }

  void CollectLongrope(const RopeParameters& p) {
    if (p.rope_type != "longrope") return;
    const double l0 = p.original_max_position_embeddings.value_or(0);
    const auto lengths = tokens_.seq_len;
    const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    Add([](RotarySettings&, RopeParameters* q) { q->longrope_branch = LongropeBranch::kShort; }, "SHORT_FACTORS",
        longest > 0
            ? fmt::format("short factors were used at length {}, above the original length {}", longest, Short(l0))
            : "short factors were used");
    Add([](RotarySettings&, RopeParameters* q) { q->longrope_branch = LongropeBranch::kLong; }, "LONG_FACTORS",
        longest > 0 ? fmt::format("long factors were used at length {}, which is not above the original length {}",
                                  longest, Short(l0))
                    : "long factors were used");
  }

  void CollectLinear(std::string_view instead_of) {
    Add(
        [](RotarySettings& s, RopeParameters* q) {
          RopeParameters linear = Unscaled(*q);
          linear.rope_type = "linear";
          linear.factor = q->factor;
          *q = linear;
          s.max_position_embeddings.reset();
        },
        "SCALING_TYPE", fmt::format("linear scaling was applied instead of {}", instead_of));
  }

  void CollectDynamic() {
    CollectLinear("dynamic");
    const auto lmax = static_cast<int64_t>(std::min(base_.max_position_embeddings.value_or(1), kLargestPosition));
    Add([](RotarySettings&, RopeParameters*) {}, "SCALING_LENGTH",
        "frequencies are those of a short sequence: the dynamic scaling did not grow with the length")
        .seq_len = std::max<int64_t>(lmax, 1);
    if (tokens_.seq_len.empty()) return;
    const int64_t longest = *std::max_element(tokens_.seq_len.begin(), tokens_.seq_len.end());
    for (int64_t other : {longest, longest - 1, longest + 1}) {
      if (other < 1 || (tokens_.seq_len.size() == 1 && other == longest)) continue;
      Add([](RotarySettings&, RopeParameters*) {}, "SCALING_LENGTH",
          fmt::format("frequencies are those of length {} for every sequence", other))
          .seq_len = other;
    }
  }

  void CollectYarn(const RopeParameters& p) {
    if (p.rope_type == "yarn") {
      const bool truncate = p.truncate.value_or(true);
      Add([truncate](RotarySettings&, RopeParameters* q) { q->truncate = !truncate; }, "TRUNCATE",
          fmt::format("yarn's ramp limits were{} rounded to whole pairs, {} truncate = {}", truncate ? " not" : "",
                      asked_.Wants(), truncate));
    }
    CollectLinear("yarn");
    CollectLengths(p);
  }

  void CollectLengths(const RopeParameters& p) {
    for (double l0 : {2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0}) {
      if (p.original_max_position_embeddings == l0) continue;
      Add([l0](RotarySettings&, RopeParameters* q) { q->original_max_position_embeddings = l0; }, "ORIGINAL_LENGTH",
          fmt::format("original_max_position_embeddings {} was applied, {} {}", Short(l0), asked_.Wants(),
                      Short(p.original_max_position_embeddings.value_or(0))));
    }
  }

  void CollectLlama3(const RopeParameters& p) {
    // A port that exchanged them slows every wave longer than the original length / high_freq_factor, and blends none.
    Add([](RotarySettings&, RopeParameters* q) { q->low_freq_factor = q->high_freq_factor; }, "LOW_HIGH_EXCHANGED",
        "low_freq_factor and high_freq_factor are exchanged");
    CollectLengths(p);
  }

  // Exponents -2k/d with another d.
  void CollectWidths(const RopeParameters& p) {
    if (!p.rope_theta || p.frequency_dim || p.rope_type == "proportional") return;
    const auto width = static_cast<double>(*base_.rotary_dim);
    for (const double other : {2 * width, width / 2, 4 * width}) {
      Add([other](RotarySettings&, RopeParameters* q) { q->frequency_dim = other; }, "FREQUENCY_DIM",
          fmt::format("exponents were computed for {} dimensions, not {}", Short(other), Short(width)));
      if (p.rope_type == "yarn") CollectWidthWithRamp(other, width);
    }
  }

  // Exponents of another width, but yarn's ramp of the right one.
  void CollectWidthWithRamp(double other, double width) {
    const auto rotary = Rotary::Create(base_, Frequencies::kFloat64, {});
    if (!rotary.ok() || rotary->NeedsSeqLen()) return;
    const auto plan = rotary->Plan(0);
    if (!plan.ok()) return;
    GivenFrequencies given{(*plan)->inv_freq, (*plan)->attention_scaling, {}};
    const double theta = *std::get<RopeParameters>(base_.frequencies).rope_theta;
    for (size_t k = 0; k < given.inv_freq.size(); ++k) {
      given.inv_freq[k] *= std::pow(theta, 2 * static_cast<double>(k) * (1 / width - 1 / other));
    }
    Add([&given](RotarySettings& s, RopeParameters*) { s.frequencies = given, s.max_position_embeddings.reset(); },
        "FREQUENCY_DIM",
        fmt::format("exponents were computed for {} dimensions, not {}, but the ramp for {}", Short(other),
                    Short(width), Short(width)));
  }

  void CollectSections(const RopeParameters& p) {
    if (p.mrope_section.size() != 3) return;
    constexpr std::array<const char*, 3> kContiguous = {"t", "h", "w"}, kErnie = {"h", "w", "t"};
    const auto& names = p.mrope_order == MropeOrder::kErnie ? kErnie : kContiguous;
    constexpr std::array<std::array<int, 2>, 3> kSwaps = {{{1, 2}, {0, 1}, {0, 2}}};
    for (const auto& [a, b] : kSwaps) {
      Add([a = a, b = b](RotarySettings&, RopeParameters* q) { std::swap(q->mrope_section[a], q->mrope_section[b]); },
          "SECTIONS", fmt::format("the sections' sizes of {} and {} are exchanged", names[a], names[b]));
    }
    for (MropeOrder order : {MropeOrder::kContiguous, MropeOrder::kInterleaved, MropeOrder::kErnie}) {
      if (order == p.mrope_order) continue;
      const char* message =
          order == MropeOrder::kContiguous    ? "sections are contiguous blocks of pairs, not interleaved"
          : order == MropeOrder::kInterleaved ? "sections are interleaved, not contiguous blocks of pairs"
                                              : "sections alternate in ERNIE's order";
      Add([order](RotarySettings&, RopeParameters* q) { q->mrope_order = order; }, "SECTION_ORDER", message);
      if (order != MropeOrder::kErnie && p.mrope_order != MropeOrder::kErnie) continue;
      // ERNIE's list begins with h and ends with t, so equal sizes per axis need a rotated list.
      Add(
          [order](RotarySettings&, RopeParameters* q) {
            auto& list = q->mrope_section;
            std::rotate(list.begin(), order == MropeOrder::kErnie ? list.begin() + 1 : list.begin() + 2, list.end());
            q->mrope_order = order;
          },
          "SECTION_ORDER", message);
    }
    Add([](RotarySettings&, RopeParameters* q) { q->mrope_section.clear(), q->mrope_order = MropeOrder::kNone; },
        "SECTIONS_IGNORED", "sections are ignored: all pairs rotate by the first axis");
  }

  void CollectAxial(const AxialRope& axial) {
    for (double theta : {10000.0, 256.0, 2000.0}) {
      AxialRope other = axial;
      bool differs = false;
      for (AxialAxis& axis : other.axes) {
        differs = differs || axis.rope_theta.value_or(10000) != theta;
        axis.rope_theta = theta;
      }
      if (!differs) continue;
      Add([&other](RotarySettings& s, RopeParameters*) { s.frequencies = other; }, "ROPE_THETA",
          fmt::format("rope_theta {} was applied", Short(theta)));
    }
    const auto same_dim = [&axial](const AxialAxis& axis) { return axis.dim == axial.axes[0].dim; };
    if (axial.axes.size() > 1 && std::all_of(axial.axes.begin(), axial.axes.end(), same_dim)) {
      Add([](RotarySettings& s, RopeParameters*) { std::get<AxialRope>(s.frequencies).alternating ^= true; },
          "SECTION_ORDER",
          axial.alternating ? "pairs are grouped by axis, not alternating" : "pairs alternate between the axes");
    }
  }

  const Asked& asked_;
  const RotarySettings base_;
  const Tokens& tokens_;
  std::vector<Option>& options_;
};

// Options with the pairs of two axes exchanged, for any kind of frequencies.
std::vector<Option> WithAxesExchanged(const Asked& asked) {
  std::vector<Option> options;
  const auto rotary = Rotary::Create(*asked.settings, Frequencies::kExact, {});
  constexpr int64_t kMostAxes = 4;  // the number of pairs of axes grows quadratically
  if (!rotary.ok() || rotary->axes() > kMostAxes) return options;
  const auto name = [&rotary](int64_t axis) {
    return rotary->axes() == 3 ? std::string(1, "thw"[axis]) : std::to_string(axis);
  };
  for (int64_t a = 0; a < rotary->axes(); ++a) {
    for (int64_t b = a + 1; b < rotary->axes(); ++b) {
      Option option{*asked.settings};
      option.exchanged_axes = {a, b};
      option.departures = {{"AXES_EXCHANGED", fmt::format("sections {} and {} are exchanged: the pairs of one rotate "
                                                          "by the other's positions",
                                                          name(a), name(b))}};
      options.push_back(std::move(option));
    }
  }
  return options;
}

std::string WithDigits(int digits, double value) {
  if (value == std::round(value) && std::fabs(value) < 1e15) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr));
}

}  // namespace

Asked Asked::Of(const std::vector<size_t>& operands) const {
  Asked part = *this;
  part.offsets.clear();
  for (const size_t n : operands) part.offsets.push_back(n < offsets.size() ? offsets[n] : 0);
  return part;
}

Tolerance Asked::tolerance() const {
  if (tolerance_ulp) return {.ulp = *tolerance_ulp, .wide_ulp = *tolerance_ulp, .of_angle = 0, .flips = false};
  if (precision && precision->frequencies != Frequencies::kFloat32) return {.of_angle = 0};
  return {};
}

std::string Short(double value) { return WithDigits(6, value); }

std::string Short(double value, double unlike) {
  int digits = 6;
  while (value != unlike && digits < 17 && WithDigits(digits, value) == WithDigits(digits, unlike)) ++digits;
  return WithDigits(digits, value);
}

Departure ScalingMissing(const RopeParameters& asked) {
  return {"SCALING_MISSING",
          fmt::format("the {} scaling is missing: unscaled frequencies of rope_theta {} were applied", asked.rope_type,
                      Short(asked.rope_theta.value_or(10000)))};
}

std::vector<Option> OptionsOf(const Asked& asked, int64_t rotary_dim, const Tokens& tokens) {
  std::vector<Option> options;
  if (!asked.settings) return options;
  RotarySettings base = *asked.settings;
  if (*base.rotary_dim != rotary_dim) {
    auto* p = std::get_if<RopeParameters>(&base.frequencies);
    if (p == nullptr) return options;
    if (p->rope_type != "proportional") p->partial_rotary_factor.reset();
    base.rotary_dim = rotary_dim;
  }
  options.push_back({base});
  for (const NamedSettings& other : asked.others) {
    if (*other.settings.rotary_dim != rotary_dim) continue;
    options.push_back({other.settings});
    options.back().departures = {{"OTHER_LAYERS", "the settings of " + other.name + " were applied"}};
  }
  Collector(asked, base, tokens, &options).Collect();
  for (Option& option : ScalingMistakes(base, tokens, {})) options.push_back(std::move(option));
  if (*asked.settings->rotary_dim == rotary_dim) {
    for (Option& option : WithAxesExchanged(asked)) options.push_back(std::move(option));
  }
  return options;
}

}  // namespace posenc::diagnose
