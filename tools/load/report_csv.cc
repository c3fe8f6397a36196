#include "tools/load/report_csv.h"

#include <fmt/format.h>

#include "tools/load/figures.h"

namespace posenc::load {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string MeasurementColumns() {
  std::string columns = "intended,skipped,succeeded,failed,request_bytes,answer_bytes";
  for (const char* histogram : {"latency", "service", "server_queue", "server_compute"}) {
    for (const auto& [name, percentile] : kPercentiles) columns += fmt::format(",{}_{}_us", histogram, name);
    columns += fmt::format(",{}_max_us", histogram);
  }
  return columns;
}

std::string MeasurementValues(const Measurement& measured) {
  const Counts& counts = measured.counts;
  std::string values = fmt::format("{},{},{},{},{},{}", counts.intended, counts.skipped, counts.succeeded,
                                   counts.failed, measured.request_bytes, measured.answer_bytes);
  for (const Histogram* histogram :
       {&measured.latency, &measured.service, &measured.server_queue, &measured.server_compute}) {
    // Nothing, where there was nothing to measure: 0 would be a latency.
    const bool empty = histogram->Count() == 0;
    for (const auto& [name, percentile] : kPercentiles) {
      values += empty ? "," : fmt::format(",{}", histogram->Percentile(percentile));
    }
    values += empty ? "," : fmt::format(",{}", histogram->Max());
  }
  return values;
}

}  // namespace

std::string TimelineCsv(const Results& results) {
  std::string csv = "second,warm_up,offered_per_second," + MeasurementColumns() + "\n";
  int number = 0;
  for (const Second& second : results.timeline) {
    csv += fmt::format("{},{},{},{}\n", number++, second.warm_up ? 1 : 0, second.offered,
                       MeasurementValues(second.measured));
  }
  return csv;
}

std::string StepsCsv(const Results& results) {
  std::string csv = "name,rate,concurrency,seconds,held," + MeasurementColumns() + "\n";
  for (const Step& step : results.steps) {
    csv += fmt::format("{},{},{},{},{},{}\n", Quoted(step.name), step.rate, step.concurrency, step.seconds,
                       step.held ? (*step.held ? "1" : "0") : "", MeasurementValues(step.measured));
  }
  return csv;
}

}  // namespace posenc::load
