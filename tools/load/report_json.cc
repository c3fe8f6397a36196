#include "tools/load/report_json.h"

#include <nlohmann/json.hpp>

#include "tools/load/figures.h"
#include "tools/load/histogram.h"

namespace posenc::load {
namespace {

using Json = nlohmann::ordered_json;

// Includes derived figures for readers without a histogram library; FromJson ignores them.
Json HistogramJson(const Histogram& histogram) {
  Json json = {{"count", histogram.Count()}, {"min", histogram.Min()}, {"mean", histogram.Mean()}};
  for (const auto& [name, percentile] : kPercentiles) json[name] = histogram.Percentile(percentile);
  json["max"] = histogram.Max();
  json["hdr_v2"] = ToV2(histogram);
  return json;
}

Json FiguresJson(const Figures& figures) {
  return {{"intended_per_second", figures.intended_per_second}, {"offered_per_second", figures.offered_per_second},
          {"achieved_per_second", figures.achieved_per_second}, {"error_share", figures.error_share},
          {"bytes_per_second", figures.bytes_per_second},       {"memory_share", figures.memory_share}};
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
          {"service_us", HistogramJson(measured.service)},
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
  if (step.held) json["held"] = *step.held;
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
  if (results.highest_rate) json["highest_rate"] = *results.highest_rate;
  json["figures"] = FiguresJson(FiguresOf(results));
  json["total"] = MeasurementJson(results.total);
  json["steps"] = Json::array();
  for (const Step& step : results.steps) json["steps"].push_back(StepJson(step, results.memory_bytes_per_second));
  json["timeline"] = Json::array();
  for (const Second& second : results.timeline) {
    json["timeline"].push_back({{"offered_per_second", second.offered},
                                {"warm_up", second.warm_up},
                                {"measured", MeasurementJson(second.measured)}});
  }
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace posenc::load
