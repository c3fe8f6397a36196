#include "tools/load/report_text.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"

namespace posenc::load::load_report_text_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(LoadText, WritesNumbersToRead) {
  EXPECT_EQ(Milliseconds(0), "0.000");
  EXPECT_EQ(Milliseconds(9999), "9.999");
  EXPECT_EQ(Milliseconds(12345), "12.35");
  EXPECT_EQ(Milliseconds(99996), "100.0");
  EXPECT_EQ(Milliseconds(3600809983), "3600810");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(12.34), "12.3");
  EXPECT_EQ(Grouped(999.6), "1,000");
  EXPECT_EQ(Grouped(1234567.8), "1,234,568");
  EXPECT_EQ(BytesPerSecond(1.234e9), "1.23 GB/s");
  EXPECT_EQ(BytesPerSecond(2.5e6), "2.5 MB/s");
  EXPECT_EQ(BytesPerSecond(500), "0.5 kB/s");
  EXPECT_EQ(Percent(0), "0.0 %");
  EXPECT_EQ(Percent(0.00001), "< 0.01 %");
  EXPECT_EQ(Percent(0.0012), "0.12 %");
  EXPECT_EQ(Percent(0.5), "50.0 %");
}

TEST(LoadText, SaysWarningsFirstAndBothTimesSideBySide) {
  const std::string text = ToText(SearchResults());
  EXPECT_THAT(text, StartsWith("Warning: the client itself was saturated\n"));
  EXPECT_THAT(text, HasSubstr("intended          1,133/s  34,000 scheduled\n"));
  EXPECT_THAT(text, HasSubstr("offered           1,122/s  33,660 started\n"));
  EXPECT_THAT(text, HasSubstr("achieved          1,093/s  33,600 succeeded\n"));
  EXPECT_THAT(text, HasSubstr("errors             0.18 %  60 UNAVAILABLE\n"));
  EXPECT_THAT(text, HasSubstr("skipped             1.0 %  340 not started"));
  EXPECT_THAT(text, HasSubstr("3.4 MB/s  0.17 % of this machine's memory bandwidth, 2.00 GB/s\n"));
  EXPECT_THAT(text, HasSubstr("intended start"));
  EXPECT_THAT(text, HasSubstr("latency "));
  EXPECT_THAT(text, HasSubstr("service time "));
  EXPECT_THAT(text, HasSubstr("server: compute "));
  EXPECT_THAT(text, HasSubstr("1400/s"));
  EXPECT_THAT(text, HasSubstr("client: late start"));
  EXPECT_THAT(text, HasSubstr("client: gRPC wait"));
  EXPECT_THAT(text, HasSubstr("Highest rate with p99=5ms\n  ApplyRotary\n"));
  EXPECT_THAT(text, HasSubstr("not met: 2.00 .. 20.00 % over, 1 % allowed\n"));
  EXPECT_THAT(text, HasSubstr("between 1,200/s (clearly met) and 1,400/s (clearly missed)"));
  EXPECT_THAT(text,
              HasSubstr("That is 40.0 % of the closed loop's peak, 3,000/s.\nAt 1400/s, which missed it, p99 was: "));
  EXPECT_THAT(text, HasSubstr("others took 12.5 % of this machine's processors, for up to 3.500 ms at a time."));
  EXPECT_THAT(text, HasSubstr("300 answers compared with the client's own results, 1 differed\n"));
  EXPECT_THAT(text,
              HasSubstr("First difference: decode, q, element 77: expected 0x3f80 (1), got 0x3f81 (1.0078125)\n"));
}

TEST(LoadText, SaysWhyARateMissedTheObjectiveIfNotByItsLatency) {
  Results results = SearchResults();
  Step& step = results.steps.back();
  step.held = false;
  step.late = {0.005, 0.9};
  step.measured.counts = {.intended = 1000, .skipped = 100, .succeeded = 875, .failed = 25};
  EXPECT_THAT(ToText(results), HasSubstr("not met: 12.5 % skipped or failed\n"));
  step.measured.counts = {.intended = 1000, .succeeded = 1000};
  EXPECT_THAT(ToText(results), HasSubstr("not met: the client could not offer this rate\n"));
  step.held.reset();
  EXPECT_THAT(ToText(results), HasSubstr("unclear: 0.50 .. 90.00 % over, 1 % allowed\n"));
}

TEST(LoadText, NeverPoolsSteps) {
  const std::string text = ToText(SteppedResults());
  EXPECT_THAT(text, StartsWith("Warning: the client itself was saturated\n\nLatency at 800/s, 1200/s, 1400/s\n"));
  EXPECT_THAT(text, Not(HasSubstr("34,000 scheduled")));
  for (const char* step : {"\n800/s, ms ", "\n1200/s, ms ", "\n1400/s, ms "}) EXPECT_THAT(text, HasSubstr(step));
}

TEST(LoadText, ShowsNoPercentileThatTooFewCallsStandBehind) {
  Histogram histogram;
  histogram.Record(1000, 9999);
  EXPECT_EQ(Time(histogram, 99.99), "-");
  EXPECT_EQ(Time(histogram, 99.9), "1.000");
  histogram.Record(1000);
  EXPECT_EQ(Time(histogram, 99.99), "1.000");
  EXPECT_EQ(Time({}, 100), "-");
}

TEST(LoadText, ComparesGoodputWithThePeak) {
  Results results = SteppedResults();
  results.peak_per_second = 1500;
  results.steps[2].overload = 10;
  results.steps[2].name = "10x";
  EXPECT_THAT(ToText(results),
              AllOf(HasSubstr("Goodput under overload\n"), HasSubstr("goodput/s of the peak"),
                    HasSubstr("10x                            1,400       1,386       1,350      90.0 %")));
}

TEST(LoadText, SaysTheBaselinesVerdict) {
  Results results = SteppedResults();
  results.comparison = BaselineVerdict{.baseline = "old.json", .begin_time = "2026-01-01", .tolerated = 0.05};
  results.comparison->figures = {{"800/s", "p99 latency, ms", 1, 2, true}};
  EXPECT_THAT(ToText(results), HasSubstr("Baseline old.json, 2026-01-01: worse (tolerated: 5.0 %)\n"
                                         "  800/s: p99 latency, ms: was 1, is 2 (100.0 % more): worse\n"));
  results.comparison->impossible = "the baseline has different steps";
  EXPECT_THAT(ToText(results), HasSubstr(": not compared, because the baseline has different steps\n"));
}

TEST(LoadText, LeavesOutWhatAClosedLoopHasNot) {
  Results results{.steps = {Step{.name = "concurrency 8", .concurrency = 8, .seconds = 1}}};
  EXPECT_THAT(ToText(results),
              AllOf(HasSubstr("A closed loop waits"), Not(HasSubstr("intended")), Not(HasSubstr("Highest")),
                    Not(HasSubstr("server:")), Not(HasSubstr("nan")), Not(HasSubstr("bandwidth"))));
}

TEST(LoadText, ShowsNoControlCharacters) {
  Results results = SearchResults();
  results.warnings = {"\x1b[31mred"};
  results.first_mismatch->call = "\x1b]0;title\x07";
  results.steps[0].name = "\x1b[2J";
  results.total.errors["\x1b[1m"] = 5;
  results.server_version = "client's \xc2\x9b\xc3\xa4";
  const std::string text = ToText(results);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("?[31mred"));
  EXPECT_THAT(text, AllOf(HasSubstr("client's "), HasSubstr("\xc3\xa4")));
}

}  // namespace
}  // namespace posenc::load::load_report_text_test
