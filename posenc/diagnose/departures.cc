#include "posenc/diagnose/departures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace posenc::diagnose {
namespace {

std::string_view Name(Pairing pairing) { return pairing == Pairing::kInterleaved ? "interleaved" : "half-split"; }

std::string DescribeHalves(int64_t parts) {
  return parts == 1 ? "the halves of all rotated elements" : fmt::format("the halves of each of {} parts", parts);
}

std::string Describe(Pairing input, Pairing output) {
  if (input == output) return std::string(Name(input));
  return fmt::format("{} on entry and {} on leaving", Name(input), Name(output));
}

std::string Describe(const Xpos& xpos) {
  return fmt::format("xPos's scale of base {} around position {}", Short(*xpos.scale_base), Short(*xpos.centre));
}

bool operator==(const Precision& a, const Precision& b) {
  return a.frequencies == b.frequencies && a.table_dtype == b.table_dtype && a.rounding == b.rounding;
}

}  // namespace

std::string Describe(const RotarySettings& settings) {
  std::string text;
  if (const auto* p = std::get_if<RopeParameters>(&settings.frequencies)) {
    text = p->rope_type + " frequencies";
    if (p->rope_theta) text += " of rope_theta " + Short(*p->rope_theta);
    if (p->factor) text += ", factor " + Short(*p->factor);
  } else if (const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    text = fmt::format("{} given frequencies", given->inv_freq.size());
  } else if (std::holds_alternative<AxialRope>(settings.frequencies)) {
    text = "axial frequencies";
  } else {
    text = "the given table";
  }
  if (settings.xpos) text += ", " + Describe(*settings.xpos);
  return text;
}

std::string Describe(const Precision& precision) {
  const std::pair<Precision, const char*> presets[] = {{kExactPrecision, "exact"},
                                                       {kF32Precision, "f32"},
                                                       {kHfEagerPrecision, "hf_eager"},
                                                       {kVllmPrecision, "vllm"},
                                                       {kFluxPrecision, "flux"}};
  for (const auto& [preset, name] : presets) {
    if (preset == precision) return name;
  }
  return "the model's own precision";
}

std::vector<Departure> LayoutDepartures(const Asked& asked, size_t operand, const PairLayout& found, int64_t head_dim) {
  std::vector<Departure> departures;
  if (!asked.settings) return departures;
  const Pairing input = *asked.settings->input_pairing, output = *asked.settings->output_pairing;
  const int64_t width = *asked.settings->rotary_dim, offset = asked.offsets[operand];
  const std::string what = operand == 0 ? "" : " of k";
  if (operand == 0 && (found.input != input || found.output != output)) {
    departures.push_back({"PAIRING", fmt::format("{} was applied, {} {}", Describe(found.input, found.output),
                                                 asked.Wants(), Describe(input, output))});
  }
  const int64_t parts = asked.settings->half_split_parts;
  if (operand == 0 && found.half_split_parts != parts) {
    departures.push_back({"PAIRING", fmt::format("{} were paired, {} {}", DescribeHalves(found.half_split_parts),
                                                 asked.Wants(), DescribeHalves(parts))});
  }
  if (operand == 0 && found.rotary_dim != width) {
    departures.push_back(
        {"ROTARY_WIDTH",
         found.rotary_dim == head_dim
             ? fmt::format("all {} dimensions rotate, {} {}", head_dim, asked.Wants(), width)
             : fmt::format("{}{}{} of {} dimensions rotate, {} {}", found.rotary_dim < width ? "only " : "",
                           found.offset == 0 ? "the first " : "", found.rotary_dim, head_dim, asked.Wants(), width)});
  }
  if (found.offset != offset) {
    departures.push_back({"ROTARY_OFFSET", fmt::format("dimensions{} from {} on rotate, {} an offset of {}", what,
                                                       found.offset, asked.Wants(), offset)});
  }
  return departures;
}

std::vector<Departure> MatchDepartures(const Asked& asked, const Match& match, const Tokens& tokens) {
  std::vector<Departure> departures;
  const bool forward = asked.direction == Direction::kForward;
  if ((match.direction > 0) != forward) {
    departures.push_back({"DIRECTION", forward ? "the inverse rotation was applied"
                                               : "the forward rotation was applied, but the inverse was requested"});
  }
  if (match.shift != 0) {
    const double first = *std::min_element(tokens.positions[0].begin(), tokens.positions[0].end());
    departures.push_back(
        {"POSITIONS", fmt::format("positions start at {}, not {}", Short(first + match.shift), Short(first))});
  }
  return departures;
}

std::vector<Departure> XposDepartures(const Asked& asked, const std::optional<Xpos>& found) {
  if (!asked.settings) return {};
  const std::optional<Xpos>& wanted = asked.settings->xpos;
  if (!found) {
    if (!wanted) return {};
    return {{"XPOS", "xPos's scale is missing"}};
  }
  if (!wanted) return {{"XPOS", fmt::format("{} was applied, {} none", Describe(*found), asked.Wants())}};
  if (found->scale_base == wanted->scale_base && found->centre == wanted->centre) return {};
  return {{"XPOS", fmt::format("{} was applied, {} {}", Describe(*found), asked.Wants(), Describe(*wanted))}};
}

std::vector<Departure> ScaleDepartures(Operand which, ScaledAs scaled_as) {
  const bool is_k = which == Operand::kKey;
  const std::string_view name = is_k ? "k" : "q", other = is_k ? "q" : "k";
  switch (scaled_as) {
    case ScaledAs::kItself: break;
    case ScaledAs::kOther: return {{"XPOS_EXCHANGED", fmt::format("{} has the scale of {}", name, other)}};
    case ScaledAs::kNone: return {{"XPOS_OF_ONE", fmt::format("{} lacks the scale that {} has", name, other)}};
  }
  return {};
}

Departure AttentionDeparture(const Asked& asked, double applied, double wanted) {
  const auto close = [](double a, double b) { return std::fabs(a / b - 1) < 1e-6; };
  if (close(applied, 1)) return {"ATTENTION_FACTOR", fmt::format("the attention factor {} is missing", Short(wanted))};
  if (close(applied, wanted * wanted)) {
    return {"ATTENTION_FACTOR", fmt::format("the attention factor {} was applied twice", Short(wanted))};
  }
  return {"ATTENTION_FACTOR", fmt::format("the attention factor {} was applied, {} {}", Short(applied, wanted),
                                          asked.Wants(), Short(wanted, applied))};
}

Departure FaultDeparture(TableFault fault) {
  switch (fault) {
    case TableFault::kNone: break;
    case TableFault::kInvFreqBF16: return {"INV_FREQ_ROUNDED", "frequencies were rounded to bfloat16"};
    case TableFault::kInvFreqFP16: return {"INV_FREQ_ROUNDED", "frequencies were rounded to float16"};
    case TableFault::kPositionsBF16:
      return {"POSITIONS_ROUNDED", "positions were rounded to bfloat16, which shows from position 257 on"};
    case TableFault::kPositionsFP16:
      return {"POSITIONS_ROUNDED", "positions were rounded to float16, which shows from position 2049 on"};
    case TableFault::kAnglesBF16: return {"ANGLES_ROUNDED", "angles were computed in bfloat16"};
    case TableFault::kAnglesFP16: return {"ANGLES_ROUNDED", "angles were computed in float16"};
    case TableFault::kExchanged: return {"COS_SIN_EXCHANGED", "cosines and sines are exchanged"};
    case TableFault::kTableBF16: return {"TABLES_ROUNDED", "tables were rounded to bfloat16"};
    case TableFault::kTableFP16: return {"TABLES_ROUNDED", "tables were rounded to float16"};
    case TableFault::kTableE4M3: return {"TABLES_ROUNDED", "tables were rounded to FP8 (E4M3)"};
    case TableFault::kTableE5M2: return {"TABLES_ROUNDED", "tables were rounded to FP8 (E5M2)"};
    case TableFault::kTableInt8: return {"TABLES_ROUNDED", "tables were rounded to int8, multiples of 1/127"};
    case TableFault::kRecurrence:
      return {"RECURRENCE", "angles were computed by a float32 recurrence over pairs: the error grows with position"};
  }
  return {};
}

std::vector<Departure> PrecisionDepartures(const Asked& asked, const Explanation& explanation, DType after) {
  std::vector<Departure> departures;
  if (!asked.precision) return departures;
  const Precision &wanted = *asked.precision, &found = explanation.variant.precision;
  if (wanted == found || std::any_of(explanation.same_precisions.begin(), explanation.same_precisions.end(),
                                     [&](const Precision& same) { return same == wanted; })) {
    return departures;
  }
  if (wanted.frequencies != found.frequencies) {
    const bool narrower = found.frequencies == Frequencies::kFloat32;
    departures.push_back({narrower ? "FLOAT32_PHASES" : "PRECISE_PHASES",
                          narrower ? "phases are float32: the error grows with position"
                                   : "phases are more precise than the requested float32"});
  }
  if (wanted.table_dtype != found.table_dtype && after != DType::kFP32) {
    departures.push_back({"TABLES_ROUNDED", found.table_dtype == TableDtype::kTensor
                                                ? fmt::format("tables were rounded to {}", posenc::Name(after))
                                                : fmt::format("tables were not rounded to {}", posenc::Name(after))});
  }
  if (wanted.rounding != found.rounding && after != DType::kFP32) {
    departures.push_back({"ROUNDING", found.rounding == Rounding::kEachOperation
                                          ? "each product was rounded, but only the result should be rounded"
                                          : "the result was rounded once, but each operation should be rounded"});
  }
  return departures;
}

std::string Sentence(const Asked& asked, const Explanation& explanation) {
  const Candidate& candidate = explanation.candidate;
  std::string text = Sentence(candidate.departures);
  if (text.empty() && asked.settings) text = asked.Asks() + " was applied";
  if (!asked.settings) {
    const std::string what =
        fmt::format("{}, {}, {} dimensions", Describe(candidate.settings),
                    Describe(*candidate.settings.input_pairing, *candidate.settings.output_pairing),
                    *candidate.settings.rotary_dim);
    text = text.empty() ? what : what + "; " + text;
  }
  return text;
}

}  // namespace posenc::diagnose
