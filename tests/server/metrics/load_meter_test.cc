#include "server/metrics/load_meter.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace posenc::server::load_meter_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::EndsWith;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;
using xds::data::orca::v3::OrcaLoadReport;

// A server with three waiting tasks, half of its requests and three quarters of its bytes.
constexpr LoadMeter::Counts kCounts{.started = 100, .failed = 10, .waiting_tasks = 3, .requests = 0.5, .bytes = 0.75};

LoadMeter MeterOf(const LoadMeter::Counts& counts) {
  return LoadMeter([counts] { return counts; });
}

TEST(LoadMeter, SaysWhatIsInFlightOfItsLimits) {
  const OrcaLoadReport report = MeterOf(kCounts).Report();
  EXPECT_EQ(report.application_utilization(), 0.75) << "the one that is nearer to its limit";
  EXPECT_THAT(report.utilization(),
              UnorderedElementsAre(Pair("in_flight_requests", 0.5), Pair("in_flight_bytes", 0.75)));
  EXPECT_THAT(report.named_metrics(), UnorderedElementsAre(Pair("waiting_tasks", 3.0)));
  EXPECT_GT(report.mem_utilization(), 0);
  EXPECT_LE(report.mem_utilization(), 1);
  EXPECT_EQ(MeterOf({.requests = 0.5, .bytes = 0.25}).Report().application_utilization(), 0.5);
}

// ORCA's message limits `utilization` to 1, but not `application_utilization`.
TEST(LoadMeter, OnlyTheApplicationsUtilizationIsAboveOne) {
  const OrcaLoadReport report = MeterOf({.requests = 1.5, .bytes = 1.25}).Report();
  EXPECT_EQ(report.application_utilization(), 1.5);
  EXPECT_THAT(report.utilization(),
              UnorderedElementsAre(Pair("in_flight_requests", 1.0), Pair("in_flight_bytes", 1.0)));
}

TEST(LoadMeter, TheFirstReportHasNoRates) {
  const OrcaLoadReport report = MeterOf(kCounts).Report();
  EXPECT_EQ(report.rps_fractional(), 0) << "calls before it";
  EXPECT_EQ(report.eps(), 0);
  EXPECT_EQ(report.cpu_utilization(), 0);
}

TEST(LoadMeter, RatesAreThoseOfTheCallsSinceTheReportBefore) {
  LoadMeter::Counts counts = kCounts;
  LoadMeter meter([&counts] { return counts; });
  meter.Report();
  counts.started += 30;
  counts.failed += 10;
  OrcaLoadReport report;
  const auto end = steady_clock::now() + minutes(1);
  while (report.rps_fractional() == 0 && steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(10));
    report = meter.Report();
  }
  EXPECT_GT(report.rps_fractional(), 0);
  EXPECT_LE(report.rps_fractional(), 30) << "of a second at least";
  EXPECT_DOUBLE_EQ(report.eps() * 3, report.rps_fractional());
  EXPECT_GT(report.cpu_utilization(), 0);
}

// A thousand calls that ask for a report do not measure a thousand times; only if each took a tenth of a second, they
// would.
TEST(LoadMeter, CallsAtOnceShareAReport) {
  int asked = 0;
  LoadMeter meter([&asked] {
    ++asked;
    return kCounts;
  });
  for (int n = 0; n < 1000; ++n) meter.Report();
  EXPECT_GE(asked, 1);
  EXPECT_LT(asked, 1000);
}

TEST(LoadMeter, ManyThreadsMayAsk) {
  std::atomic<int64_t> started{0};
  LoadMeter meter([&started] { return LoadMeter::Counts{.started = started, .requests = 0.5}; });
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        ++started;
        EXPECT_EQ(meter.Report().application_utilization(), 0.5);
        EXPECT_TRUE(MakeLoadTrailer("BIN", &meter));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(LoadTrailer, Text) {
  LoadMeter meter = MeterOf(kCounts);
  const auto trailer = MakeLoadTrailer("TEXT", &meter);
  ASSERT_TRUE(trailer);
  EXPECT_EQ(trailer->name, "endpoint-load-metrics");
  EXPECT_THAT(trailer->value,
              AllOf(StartsWith("TEXT cpu_utilization=0, mem_utilization="),
                    EndsWith(", application_utilization=0.75, rps_fractional=0, eps=0, utilization.in_flight_bytes=0.75"
                             ", utilization.in_flight_requests=0.5, named_metrics.waiting_tasks=3")));
}

TEST(LoadTrailer, Json) {
  LoadMeter meter = MeterOf(kCounts);
  const auto trailer = MakeLoadTrailer("JSON", &meter);
  ASSERT_TRUE(trailer);
  EXPECT_EQ(trailer->name, "endpoint-load-metrics");
  ASSERT_THAT(trailer->value, StartsWith("JSON {"));
  EXPECT_EQ(trailer->value.find('\n'), std::string::npos) << "a trailer is one line";
  auto report = nlohmann::json::parse(trailer->value.substr(5), nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << trailer->value;
  EXPECT_GT(report["mem_utilization"].get<double>(), 0);
  report.erase("mem_utilization");
  EXPECT_EQ(report, nlohmann::json::parse(R"({"cpu_utilization": 0.0, "application_utilization": 0.75,
      "rps_fractional": 0.0, "eps": 0.0, "utilization": {"in_flight_requests": 0.5, "in_flight_bytes": 0.75},
      "named_metrics": {"waiting_tasks": 3.0}})"));
}

TEST(LoadTrailer, Binary) {
  LoadMeter meter = MeterOf(kCounts);
  const auto trailer = MakeLoadTrailer("BIN", &meter);
  ASSERT_TRUE(trailer);
  EXPECT_EQ(trailer->name, "endpoint-load-metrics-bin") << "gRPC encodes only bytes of names with -bin";
  OrcaLoadReport report;
  ASSERT_TRUE(report.ParseFromString(trailer->value));
  EXPECT_EQ(report.application_utilization(), 0.75);
  EXPECT_THAT(report.utilization(),
              UnorderedElementsAre(Pair("in_flight_requests", 0.5), Pair("in_flight_bytes", 0.75)));
  EXPECT_THAT(report.named_metrics(), UnorderedElementsAre(Pair("waiting_tasks", 3.0)));
}

TEST(LoadTrailer, FormatsMayBeInLowerCase) {
  LoadMeter meter = MeterOf(kCounts);
  EXPECT_EQ(MakeLoadTrailer("bin", &meter)->name, "endpoint-load-metrics-bin");
  EXPECT_THAT(MakeLoadTrailer("Json", &meter)->value, StartsWith("JSON {"));
  EXPECT_THAT(MakeLoadTrailer("tEXT", &meter)->value, StartsWith("TEXT cpu_utilization="));
}

TEST(LoadTrailer, UnknownFormatsHaveNone) {
  int measured = 0;
  LoadMeter meter([&measured] {
    ++measured;
    return kCounts;
  });
  for (const std::string format : {"", "XML", "TEXT ", "TEX", "BINARY", "JSON,TEXT"}) {
    EXPECT_FALSE(MakeLoadTrailer(format, &meter)) << format;
  }
  EXPECT_FALSE(MakeLoadTrailer(std::string("BIN\0", 4), &meter));
  EXPECT_EQ(measured, 1) << "at the start, and for nobody else";
}

}  // namespace
}  // namespace posenc::server::load_meter_test
