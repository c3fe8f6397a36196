#include "tools/load/report_json.h"

#include <nlohmann/json.hpp>

#include "tools/load/compare.h"
#include "tools/load/figures.h"
#include "tools/load/histogram.h"

namespace posenc::load {
namespace {

using Json = nlohmann::ordered_json;

// Includes derived figures for readers without a histogram library; FromJson ignores them.
Json HistogramJson(const Histogram& histogram) {
  Json json = {{"count", histogram.Count()}, {"min", histogram.Min()}, {"mean", histogram.Mean()}};
  for (const auto& [name, percentile] : kPercentiles) {
    json[name] = IsKnown(histogram, percentile) ? Json(histogram.Percentile(percentile)) : Json();
  }
  json["max"] = histogram.Max();
  json["hdr_v2"] = ToV2(histogram);
  return json;
}

Json FiguresJson(const Figures& figures) {
  return {{"intended_per_second", figures.intended_per_second},
          {"offered_per_second", figures.offered_per_second},
          {"achieved_per_second", figures.achieved_per_second},
          {"error_share", figures.error_share},
          {"failed_share", figures.failed_share},
          {"skipped_share", figures.skipped_share},
          {"bytes_per_second", figures.bytes_per_second},
          {"memory_share", figures.memory_share}};
}

Json MeasurementJson(const Measurement& measured) {
  return {{"intended", measured.counts.intended},
          {"skipped", measured.counts.skipped},
          {"succeeded", measured.counts.succeeded},
          {"failed", measured.counts.failed},
          {"errors", measured.errors},
          {"request_bytes", measured.request_bytes},
          {"answer_bytes", measured.answer_bytes},
          {"latency_us", HistogramJson(measured.latency)},
          {"client_late_us", HistogramJson(measured.late)},
          {"service_us", HistogramJson(measured.service)},
          {"client_send_wait_us", HistogramJson(measured.send_wait)},
          {"server_queue_us", HistogramJson(measured.server_queue)},
          {"server_compute_us", HistogramJson(measured.server_compute)}};
}

Json StepJson(const Step& step, double memory_bytes_per_second) {
  Json json = {{"name", step.name},
               {"rate", step.rate},
               {"concurrency", step.concurrency},
               {"seconds", step.seconds},
               {"drain_seconds", step.drain_seconds},
               {"figures", FiguresJson(FiguresOf(step, memory_bytes_per_second))},
               {"measured", MeasurementJson(step.measured)}};
  json["begin_second"] = step.begin_second;
  json["stalls"] = Json::array();
  for (const Stall& stall : step.stalls) json["stalls"].push_back({{"begin", stall.begin}, {"seconds", stall.seconds}});
  if (step.overload > 0) json["overload"] = step.overload;
  if (step.tries > 0) {
    json["tries"] = step.tries;
    json["late_share"] = {{"low", step.late.low}, {"high", step.late.high}, {"allowed", step.late_allowed}};
    if (step.held) json["held"] = *step.held;
  }
  return json;
}

Json ComparisonJson(const BaselineVerdict& comparison) {
  Json json = {{"file", comparison.baseline},
               {"begin_time", comparison.begin_time},
               {"tolerated", comparison.tolerated},
               {"verdict", VerdictOf(comparison)}};
  if (!comparison.impossible.empty()) json["reason"] = comparison.impossible;
  json["figures"] = Json::array();
  for (const ComparedFigure& figure : comparison.figures) {
    json["figures"].push_back({{"step", figure.step},
                               {"figure", figure.figure},
                               {"before", figure.before},
                               {"after", figure.after},
                               {"worse", figure.worse}});
  }
  return json;
}

// The mix as a JSON object, so that a program can extract and replay it; a string if it is not an object.
Json MixJson(const std::string& text) {
  Json mix = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return mix.is_object() ? mix : Json(text);
}

}  // namespace

std::string ToJson(const Results& results) {
  Json json = {{"schema", "posenc.load/1"},
               {"begin_time", results.begin_time},
               {"seconds", results.seconds},
               {"drain_seconds", results.drain_seconds},
               {"interrupted", results.interrupted},
               {"clients", results.clients},
               {"warnings", results.warnings},
               {"settings", results.settings},
               {"mix", MixJson(results.mix_json)},
               {"server_version", results.server_version},
               {"server_cpu_target", results.server_cpu_target},
               {"memory_bytes_per_second", results.memory_bytes_per_second},
               {"client_cpu_share", results.client_cpu_share},
               {"late_starts_p99_us", results.late_starts_p99_us},
               {"verify", results.verify},
               {"verified", results.verified},
               {"mismatches", results.mismatches},
               {"not_verified", results.not_verified}};
  if (const auto& first = results.first_mismatch) {
    json["first_mismatch"] = {{"call", first->call},
                              {"tensor", first->tensor},
                              {"element", first->element},
                              {"expected", first->expected},
                              {"got", first->got}};
  }
  json["noise"] = {{"share", results.noise.share}, {"longest_us", results.noise.longest_us}};
  if (results.peak_per_second > 0) json["peak_per_second"] = results.peak_per_second;
  if (results.highest_rate) json["highest_rate"] = *results.highest_rate;
  if (results.lowest_missed_rate) json["lowest_missed_rate"] = *results.lowest_missed_rate;
  if (results.comparison) json["baseline"] = ComparisonJson(*results.comparison);
  if (!results.stepped()) {
    json["figures"] = FiguresJson(FiguresOf(results));
    json["total"] = MeasurementJson(results.total);
  }
  json["steps"] = Json::array();
  for (const Step& step : results.steps) json["steps"].push_back(StepJson(step, results.memory_bytes_per_second));
  json["timeline"] = Json::array();
  for (const Second& second : results.timeline) {
    json["timeline"].push_back({{"offered_per_second", second.offered},
                                {"warm_up", second.warm_up},
                                {"completed", second.completed},
                                {"measured", MeasurementJson(second.measured)}});
  }
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace posenc::load
