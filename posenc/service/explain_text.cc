#include "posenc/service/explain_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/methods/rope/query_scale.h"
#include "posenc/model/config_json.h"
#include "posenc/service/explain_reach.h"

namespace posenc::wire {
namespace {

std::string Pairs(int64_t first, int64_t last) {
  return first == last ? fmt::format("pair {}", first) : fmt::format("pairs {}-{}", first, last);
}

// Runs of pairs with the same kind of scaling.
void WriteRuns(const std::vector<ScaledPair>& pairs, v1::ExplanationText* text) {
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i == 0 || pairs[i].scaling != pairs[i - 1].scaling) {
      v1::PairRun* run = text->add_runs();
      run->set_first(static_cast<int64_t>(i));
      run->set_scaling(Name(pairs[i].scaling, kPairScalings));
      run->set_least_ratio(pairs[i].ratio);
      run->set_most_ratio(pairs[i].ratio);
    }
    v1::PairRun* run = text->mutable_runs(text->runs_size() - 1);
    run->set_last(static_cast<int64_t>(i));
    run->set_least_ratio(std::min(run->least_ratio(), pairs[i].ratio));
    run->set_most_ratio(std::max(run->most_ratio(), pairs[i].ratio));
  }
}

bool Blends(const std::string& rope_type) {
  const RopeMethod* method = FindRopeMethod(rope_type);
  return method != nullptr && method->blends;
}

// Says by how much the pairs are slowed or sped up.
std::string DescribeRatios(double least, double most, bool blended) {
  const auto range = [](double from, double to) {
    const std::string first = fmt::format("{:.4g}", from), last = fmt::format("{:.4g}", to);
    return first == last ? last : fmt::format("{} to {}", first, last);
  };
  if (least <= 0 || (least < 1 && most > 1)) return fmt::format("have their frequencies times {}", range(least, most));
  if (most > 1) return fmt::format("sped up {} times", range(least, most));
  const std::string times = range(1 / most, 1 / least);
  return fmt::format("{}slowed {} times", blended && times.find(' ') != times.npos ? "blended, " : "", times);
}

std::string DescribeRun(const v1::PairRun& run, bool blends) {
  const std::string pairs = Pairs(run.first(), run.last());
  switch (run.scaling()) {
    case v1::PAIR_SCALING_KEPT: return pairs + " kept";
    case v1::PAIR_SCALING_STOPPED: return pairs + " stopped";
    case v1::PAIR_SCALING_INTERPOLATED: {
      const double ratio = run.least_ratio();
      return fmt::format("{} {} {:.6g} times", pairs, ratio > 1 ? "sped up" : "slowed", ratio > 1 ? ratio : 1 / ratio);
    }
    default: return fmt::format("{} {}", pairs, DescribeRatios(run.least_ratio(), run.most_ratio(), blends));
  }
}

std::string Capital(std::string sentence) {
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return sentence;
}

std::string Width(const ResolvedRotary& resolved) {
  if (!resolved.rotary->rotates()) return "No element of a head rotates.";
  const int64_t d = resolved.rotary->rotary_dim(), head = resolved.whole_head;
  const bool interleaved = resolved.rotary->input_pairing() == Pairing::kInterleaved;
  const std::string partners = interleaved                                ? "2i and 2i+1"
                               : resolved.rotary->half_split_parts() == 1 ? fmt::format("i and i+{}", d / 2)
                                                                          : "i and its partner in the same part";
  const std::string share = head <= d ? fmt::format("All {} elements of a head rotate", d)
                            : resolved.rotary_offset == 0
                                ? fmt::format("The first {} of a head's {} elements rotate", d, head)
                                : fmt::format("Elements {}-{} of a head's {} rotate", resolved.rotary_offset,
                                              resolved.rotary_offset + d - 1, head);
  const bool known = head != 0 && (head <= d || resolved.rotary_offset == 0);
  return fmt::format("{}, in {} pairs{}.", head == 0 ? fmt::format("{} elements of a head rotate", d) : share, d / 2,
                     known || head == 0 ? fmt::format(" of elements {}", partners) : "");
}

std::string Branch(const RotaryPlan& plan) {
  if (plan.branch.empty()) return "";
  if (plan.seq_len == 0) return fmt::format("This is the branch \"{}\", for all sequences.", plan.branch);
  return fmt::format("This is the branch \"{}\", for a sequence of {} tokens.", plan.branch,
                     Thousands(static_cast<double>(plan.seq_len)));
}

std::string Scores(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  const double a = plan.attention_scaling, softmax = resolved.SoftmaxScaleFactor(plan);
  std::string sentence;
  if (a != 1) {
    sentence = fmt::format("Cosines and sines are multiplied by {:.6g}, and so scores by {:.6g}", a, a * a);
  }
  if (softmax != 1) {
    sentence += fmt::format("{}he model multiplies its softmax scale by {:.6g}, outside the rotation",
                            sentence.empty() ? "T" : "; t", softmax);
  }
  return sentence.empty() ? "" : sentence + ".";
}

// Says from which position on q is multiplied, and by how much there, if the factor has steps, and at the model's last
// position, or far from the first.
std::string Queries(const ResolvedRotary& resolved) {
  const auto& scale = resolved.rotary->settings().query_scale;
  if (!scale) return "";
  const std::optional<double> first = FirstScaledPosition(*scale);
  if (!first) return "The model's factor of queries is 1 at every position.";
  const double last = std::max(*first, resolved.longest ? *resolved.longest - 1 : 131071.0);
  const bool has_steps =
      scale->function == QueryScaleFunction::kLlama4 || scale->function == QueryScaleFunction::kMinistral3;
  const auto by = [&](double at) { return QueryFactors(Frequencies::kExact, *scale, {at})[0]; };
  return fmt::format(
      "Queries from {} {} on are multiplied, {}by {:.4g} at {}.",
      scale->position_source == PositionSource::kCacheIndex ? "index in the cache" : "position", Thousands(*first),
      has_steps && last > *first ? fmt::format("by {:.4g} there and ", by(*first)) : "", by(last), Thousands(last));
}

constexpr std::string_view kOwnPairing = "the pairing, which is the request's";

// Lists what llama.cpp would compute otherwise from the same GGUF.
std::vector<std::string> FromLlamaCpp(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  std::vector<std::string> departures = {
      resolved.precision.frequencies == Frequencies::kExact
          ? "roundings (llama.cpp multiplies float32 angles from pair to pair; none here but the last)"
          : "roundings (llama.cpp multiplies float32 angles from pair to pair; here each pair has its own power)"};
  if (HasNote(resolved, "PAIRING_OVERRIDDEN")) departures.emplace_back(kOwnPairing);
  if (!plan.branch.empty()) {
    departures.emplace_back(
        "the lists of factors, which llama.cpp selects by the context size that it is started with");
  }
  if (HasNote(resolved, "SPLIT"))
    departures.emplace_back("the frequency factors in the model's other files, not read here");
  return departures;
}

// Lists what the code of the model's class would compute otherwise from the same config.json.
std::vector<std::string> FromClass(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  std::vector<std::string> departures;
  if (resolved.precision.frequencies == Frequencies::kExact) {
    departures.emplace_back("roundings (none here but the last; PRECISION_PRESET_MODEL repeats the class's)");
  }
  if (HasNote(resolved, "PAIRING_OVERRIDDEN")) departures.emplace_back(kOwnPairing);
  if (HasNote(resolved, "UNKNOWN_MODEL_TYPE") || HasNote(resolved, "RECOGNIZED")) {
    departures.emplace_back("the model_type, which transformers does not know");
  }
  if (plan.branch == "scaled" || plan.branch == "unscaled") {
    departures.emplace_back("memory: only the sequence's own length counts, not longer ones before it");
  }
  return departures;
}

std::string Departures(const ResolvedRotary& resolved, const RotaryPlan& plan) {
  if (resolved.original.empty()) return "";  // settings
  const auto departures = HasNote(resolved, "GGUF") ? FromLlamaCpp(resolved, plan) : FromClass(resolved, plan);
  if (departures.empty()) return "";
  return fmt::format("Differs from {} in: {}.", resolved.original, fmt::join(departures, "; "));
}

}  // namespace

absl::Status ExplainInWords(const ResolvedRotary& resolved, const RotaryPlan& plan, const Limits& limits,
                            v1::ExplanationText* text) {
  const auto say = [text](const std::string& sentence) {
    if (!sentence.empty()) text->add_sentence(sentence);
  };
  say(Width(resolved));
  if (resolved.rotary->differs_in_pair()) {
    say("This is no rotation: the two elements of a pair have different angles, so lengths are not kept, and scores "
        "depend on both positions, not only on their difference.");
  }
  say(Branch(plan));
  const auto* parameters = std::get_if<RopeParameters>(&resolved.rotary->settings().frequencies);
  if (parameters != nullptr && (parameters->rope_type != "default" || parameters->resonance.value_or(false))) {
    POSENC_ASSIGN_OR_RETURN(const Rotary exact,
                            Rotary::Create(resolved.rotary->settings(), Frequencies::kExact, limits));
    const auto exact_plan = exact.Plan(plan.seq_len);
    if (!exact_plan.ok()) return OfParameters(resolved, exact_plan.status());
    POSENC_ASSIGN_OR_RETURN(const auto pairs, CompareWithUnscaled(exact, **exact_plan, limits));
    WriteRuns(pairs, text);
    if (text->runs_size() > 16) {
      say(fmt::format("The scaling differs between {} runs of pairs.", text->runs_size()));
    } else if (text->runs_size() > 0) {
      std::vector<std::string> runs;
      const bool blends = Blends(parameters->rope_type) &&
                          std::any_of(text->runs().begin(), text->runs().end(), [](const v1::PairRun& run) {
                            return run.scaling() == v1::PAIR_SCALING_INTERPOLATED;
                          });
      for (const v1::PairRun& run : text->runs()) runs.push_back(DescribeRun(run, blends));
      say(Capital(fmt::format("{}.", fmt::join(runs, ", "))));
    }
  }
  say(Lengths(resolved));
  say(Reach(resolved, plan));
  say(Window(resolved));
  say(Scores(resolved, plan));
  say(Queries(resolved));
  say(Departures(resolved, plan));
  return absl::OkStatus();
}

}  // namespace posenc::wire
