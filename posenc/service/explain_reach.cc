#include "posenc/service/explain_reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/methods/rope/methods.h"

namespace posenc::wire {
namespace {

const RopeParameters* ParametersOf(const ResolvedRotary& resolved) {
  return std::get_if<RopeParameters>(&resolved.rotary->settings().frequencies);
}

// Length that the scaling's factor makes of the length before it; 0 unless the factor says so. Llama 3's and LongRoPE's
// factor does not: their max_position_embeddings is the length after the scaling.
double ScaledLength(const ResolvedRotary& resolved) {
  const RopeParameters* parameters = ParametersOf(resolved);
  if (parameters == nullptr || !parameters->factor) return 0;
  const auto original = parameters->original_max_position_embeddings;
  if (parameters->rope_type == "yarn") return *parameters->factor * original.value_or(*resolved.longest);
  if (parameters->rope_type != "linear") return 0;
  if (original) return *parameters->factor * *original;
  // Layers of other types are not scaled, and have the file's length too.
  return resolved.layer_type.empty() ? *parameters->factor * *resolved.longest : 0;
}

// The length that a table has to reach: the file's, or the scaling's if that is larger.
double ReachedLength(const ResolvedRotary& resolved) { return std::max(*resolved.longest, ScaledLength(resolved)); }

// Says what happens beyond the model's length.
std::string Beyond(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  const RopeParameters* parameters = ParametersOf(resolved);
  if (parameters != nullptr && resolved.rotary->NeedsSeqLen()) {
    if (FindRopeMethod(parameters->rope_type)->scales_theta) return "a longer sequence has a larger base";
    return fmt::format("a sequence of more than {} tokens has the long list of factors, which goes on beyond {}",
                       Thousands(parameters->original_max_position_embeddings.value_or(0)),
                       Thousands(ReachedLength(resolved)));
  }
  double slowest = 0;
  for (const double frequency : plan.inv_freq) {
    if (frequency != 0 && (slowest == 0 || std::abs(frequency) < slowest)) slowest = std::abs(frequency);
  }
  constexpr double kTurn = 6.283185307179586;
  if (slowest == 0) return "";
  return fmt::format("beyond it the same frequencies go on, and the slowest pair repeats after {} positions",
                     Thousands(std::round(kTurn / slowest)));
}

std::string RowsAndBytes(double rows, double values) {
  return fmt::format("{} rows and {} bytes in float32", Thousands(rows),
                     Thousands(rows * values * double{sizeof(float)}));
}

std::string ReachOfTable(const ModelTable& table) {
  if (table.rows <= table.offset || table.resize) return "";
  return fmt::format("The learned table has {}, for at most {} tokens: there is no row beyond.",
                     RowsAndBytes(static_cast<double>(table.rows), static_cast<double>(table.width)),
                     Thousands(static_cast<double>(table.rows - table.offset)));
}

std::string ReachOfSines(const ModelLayers& layers) {
  const auto dim = static_cast<double>(layers.sinusoidal->dim);
  if (!layers.longest || !(*layers.longest >= 1)) return "Sinusoids have no last position.";
  return fmt::format(
      "{} is {}: a table up to there has {}; sinusoids go on beyond it, but the class's own table may not.",
      layers.longest_field, Thousands(*layers.longest), RowsAndBytes(*layers.longest, dim));
}

}  // namespace

std::string Thousands(double number) {
  if (!(std::abs(number) < 1e15) || number != std::floor(number)) return fmt::format("{:.6g}", number);
  std::string digits = fmt::format("{:.0f}", number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t place = digits.size(); place > first + 3;) digits.insert(place -= 3, ",");
  return digits;
}

bool HasNote(const ResolvedRotary& resolved, std::string_view code) {
  return std::any_of(resolved.notes.begin(), resolved.notes.end(), [&](const Note& note) { return note.code == code; });
}

std::string Lengths(const ResolvedRotary& resolved) {
  if (!resolved.longest) return "";
  const RopeParameters* parameters = ParametersOf(resolved);
  const auto original = parameters == nullptr ? std::nullopt : parameters->original_max_position_embeddings;
  if (!(*resolved.longest >= original.value_or(1))) return "";
  std::string sentence = fmt::format("{} is {}", resolved.longest_field, Thousands(*resolved.longest));
  if (original && *original != *resolved.longest)
    sentence += fmt::format("; before the scaling {}", Thousands(*original));
  if (const double scaled = ScaledLength(resolved); scaled > *resolved.longest) {
    sentence +=
        fmt::format("{} its factor {:.6g} makes {} of it{}", original && *original != *resolved.longest ? ", and" : ";",
                    *parameters->factor, Thousands(scaled), original ? "" : ", if it is the length before the scaling");
  }
  return sentence + ".";
}

std::string Reach(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  if (!resolved.rotary->rotates() || Lengths(resolved).empty()) return "";
  const std::string beyond = Beyond(resolved, plan);
  if (beyond.empty()) return "";
  return fmt::format("A table of cosines and sines up to there has {}; {}.",
                     RowsAndBytes(ReachedLength(resolved), static_cast<double>(resolved.rotary->rotary_dim())), beyond);
}

std::string Window(const ResolvedRotary& resolved) {
  if (!resolved.window) return "";
  return fmt::format("Attention reaches {} tokens back (sliding_window), while positions go on.",
                     Thousands(*resolved.window));
}

std::string ReachWithoutRotary(const ModelLayers& layers) {
  if (layers.table) return ReachOfTable(*layers.table);
  if (layers.sinusoidal) return ReachOfSines(layers);
  if (!layers.bias) return "";
  if (std::holds_alternative<AlibiSettings>(*layers.bias)) {
    return "A bias is a slope times a distance: it has no last position.";
  }
  const auto* t5 = std::get_if<T5Settings>(&*layers.bias);
  if (t5 == nullptr || !t5->max_distance) return "";
  return fmt::format("Distances from {} (max_distance) on have the last bucket: there is no last position.",
                     Thousands(static_cast<double>(*t5->max_distance)));
}

}  // namespace posenc::wire
