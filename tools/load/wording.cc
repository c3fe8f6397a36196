#include "tools/load/wording.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/load/figures.h"
#include "tools/load/report_text.h"
#include "tools/load/search.h"

namespace posenc::load {
namespace {

using nlohmann::json;

constexpr double kSaneShare = 0.5;  // of the peak; a search that finds less says where the time went

std::string Setting(const Results& results, const char* name) {
  const auto found = results.settings.find(name);
  return found == results.settings.end() ? "" : found->second;
}

// Text of a member of any type; empty if absent.
std::string Member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string CallText(const json& call) {
  std::string text = Member(call, "method");
  if (const std::string name = Member(call, "name"); !name.empty() && name != text)
    text = absl::StrCat(name, ": ", text);
  for (const char* name : {"transport", "dtype"}) {
    if (const std::string value = Member(call, name); !value.empty()) absl::StrAppend(&text, ", ", value);
  }
  if (call.contains("heads")) {
    absl::StrAppend(&text, ", ", Member(call, "batch"), " x ", Member(call, "tokens"), " tokens, ",
                    Member(call, "heads"));
    if (Member(call, "key_heads") != "0") absl::StrAppend(&text, " + ", Member(call, "key_heads"));
    absl::StrAppend(&text, " heads of ", Member(call, "head_dim"));
  }
  if (call.contains("config_json") || call.contains("gguf")) absl::StrAppend(&text, ", with a model");
  return text;
}

// The percentile of the decisive limit of a search: the allowed share is what lies above it.
std::string Parts(const Step& step, double percentile) {
  const Measurement& measured = step.measured;
  const std::pair<const char*, const Histogram*> parts[] = {{"wait in the client's gRPC", &measured.send_wait},
                                                            {"server queue", &measured.server_queue},
                                                            {"server compute", &measured.server_compute}};
  std::string text =
      fmt::format("service time {} ms", Milliseconds(static_cast<double>(measured.service.Percentile(percentile))));
  for (const auto& [name, histogram] : parts) {
    if (histogram->Count() == 0) continue;
    absl::StrAppend(&text, ", ", name, " ", Milliseconds(static_cast<double>(histogram->Percentile(percentile))),
                    " ms");
  }
  return text;
}

}  // namespace

std::string Title(const Results& results) {
  if (results.steps[0].tries > 0) return absl::StrCat("Highest rate with ", Setting(results, "--slo"));
  const bool overload =
      std::any_of(results.steps.begin(), results.steps.end(), [](const Step& step) { return step.overload > 0; });
  if (overload) return "Goodput under overload";
  if (results.steps.size() > 4) return absl::StrCat("Latency in ", results.steps.size(), " steps");
  std::vector<std::string> names;
  for (const Step& step : results.steps) names.push_back(step.name);
  return absl::StrCat(IsOpenLoop(results) ? "Latency at " : "Throughput at ", absl::StrJoin(names, ", "));
}

std::vector<std::string> Workload(const Results& results) {
  const json mix = json::parse(results.mix_json, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> texts;
  if (!mix.is_object() || !mix.contains("calls") || !mix["calls"].is_array()) return texts;
  double all = 0;
  const auto weight = [](const json& call) {
    return call.contains("weight") && call["weight"].is_number() ? call["weight"].get<double>() : 1.0;
  };
  for (const json& call : mix["calls"]) {
    if (call.is_object()) all += weight(call);
  }
  for (const json& call : mix["calls"]) {
    if (!call.is_object()) continue;
    const bool alone = mix["calls"].size() == 1;
    texts.push_back(absl::StrCat(alone || all <= 0 ? "" : Percent(weight(call) / all) + " ", CallText(call)));
  }
  return texts;
}

const char* VerdictOf(const Step& step) {
  if (step.tries == 0) return "";
  return !step.held ? "unclear" : *step.held ? "met" : "not met";
}

std::string Evidence(const Step& step) {
  if (step.tries == 0) return "";
  if (step.held == false && step.late_allowed > 0 && step.late.low <= step.late_allowed) {
    const Counts& counts = step.measured.counts;
    const auto lost = static_cast<double>(counts.skipped + counts.failed);
    if (lost == 0) return "the client could not offer this rate";
    return absl::StrCat(Percent(lost / static_cast<double>(counts.intended)), " skipped or failed");
  }
  return fmt::format("{:.2f} .. {:.2f} % over, {:.3g} % allowed", 100 * step.late.low, 100 * step.late.high,
                     100 * step.late_allowed);
}

std::vector<std::string> SearchAnswer(const Results& results) {
  std::vector<std::string> said;
  if (results.steps.empty() || results.steps[0].tries == 0) return said;
  if (!results.highest_rate) {
    said.emplace_back("No rate clearly met the objective.");
  } else if (!results.lowest_missed_rate) {
    said.push_back(
        absl::StrCat("The highest rate that meets the objective is ", Grouped(*results.highest_rate), "/s or more."));
  } else {
    said.push_back(absl::StrCat("The highest rate that meets the objective is between ", Grouped(*results.highest_rate),
                                "/s (clearly met) and ", Grouped(*results.lowest_missed_rate), "/s (clearly missed)."));
  }
  if (results.peak_per_second <= 0) return said;
  const double share = results.highest_rate.value_or(0) / results.peak_per_second;
  said.push_back(absl::StrCat("That is ", Percent(share), " of the closed loop's peak, ",
                              Grouped(results.peak_per_second), "/s."));
  if (share >= kSaneShare) return said;
  const auto missed = std::find_if(results.steps.begin(), results.steps.end(), [&](const Step& step) {
    return step.held == false && (!results.lowest_missed_rate || step.rate == *results.lowest_missed_rate);
  });
  if (missed == results.steps.end()) return said;
  const double percentile = 100 * (1 - missed->late_allowed);
  said.push_back(
      fmt::format("At {}, which missed it, p{:.6g} was: {}.", missed->name, percentile, Parts(*missed, percentile)));
  said.push_back(
      absl::StrCat("The rest is the network, and processes that wait for a processor. ", NoiseText(results.noise)));
  return said;
}

std::string NoiseText(const Noise& noise) {
  return fmt::format("Before the run, others took {} of this machine's processors, for up to {} ms at a time.",
                     Percent(noise.share), Milliseconds(noise.longest_us));
}

}  // namespace posenc::load
