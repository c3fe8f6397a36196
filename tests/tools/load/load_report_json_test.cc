#include "tools/load/report_json.h"

#include <nlohmann/json.hpp>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"

namespace posenc::load::load_report_json_test {
namespace {

using nlohmann::json;

TEST(LoadReport, ReadsBackWhatItWrote) {
  const Results results = SearchResults();
  const std::string text = ToJson(results);
  const Results read = FromJson(text).value();
  EXPECT_EQ(ToJson(read), text);
  EXPECT_EQ(read.settings, results.settings);
  EXPECT_EQ(json::parse(read.mix_json), json::parse(results.mix_json));
  EXPECT_EQ(read.total.latency, results.total.latency);
  EXPECT_EQ(read.total.counts.skipped, results.total.counts.skipped);
  EXPECT_EQ(read.total.errors, results.total.errors);
  EXPECT_EQ(read.timeline[17].measured.server_compute, results.timeline[17].measured.server_compute);
  EXPECT_EQ(read.timeline[0].warm_up, true);
  EXPECT_EQ(read.steps[2].held, false);
  EXPECT_EQ(read.highest_rate, 1200);
  EXPECT_EQ(read.first_mismatch->got, "0x3f81 (1.0078125)");
  EXPECT_EQ(read.late_starts_p99_us, 41.5);
  EXPECT_EQ(read.warnings, results.warnings);
}

TEST(LoadReport, GivesStepsTheirOwnFiguresAndNoneOfAllTogether) {
  const Results results = SteppedResults();
  const std::string text = ToJson(results);
  const json report = json::parse(text);
  EXPECT_FALSE(report.contains("total") || report.contains("figures"));
  EXPECT_EQ(report["steps"][1]["begin_second"], 10);
  EXPECT_EQ(report["steps"][1]["stalls"], json({{{"begin", 2.5}, {"seconds", 1}}}));
  EXPECT_EQ(report["steps"][0]["figures"]["skipped_share"], 0.01);
  EXPECT_EQ(report["timeline"][29]["completed"], 1384);
  const Results read = FromJson(text).value();
  EXPECT_EQ(ToJson(read), text);
  EXPECT_EQ(read.total.counts.intended, 34000);
}

TEST(LoadReport, SaysWhatASearchFoundAndTheBaselinesVerdict) {
  Results results = SearchResults();
  results.comparison = BaselineVerdict{.baseline = "old.json", .tolerated = 0.05};
  results.comparison->figures = {{"", "highest rate that met the objective, calls/s", 1500, 1200, true}};
  const json report = json::parse(ToJson(results));
  EXPECT_EQ(report["lowest_missed_rate"], 1400);
  EXPECT_EQ(report["peak_per_second"], 3000);
  EXPECT_EQ(report["noise"]["share"], 0.125);
  EXPECT_EQ(report["steps"][2]["late_share"], json({{"low", 0.02}, {"high", 0.2}, {"allowed", 0.01}}));
  EXPECT_EQ(report["baseline"]["verdict"], "worse");
  EXPECT_EQ(report["baseline"]["figures"][0]["after"], 1200);
}

TEST(LoadReport, HasNoPercentileThatTooFewCallsStandBehind) {
  const json latency = json::parse(ToJson(SearchResults()))["steps"][0]["measured"]["latency_us"];
  EXPECT_TRUE(latency["p99.99"].is_null());  // 7,900 calls
  EXPECT_TRUE(latency["p99.9"].is_number());
}

TEST(LoadReport, LeavesOutWhatThereIsNot) {
  Results results{.mix_json = "not JSON", .steps = {Step{.name = "concurrency 8", .concurrency = 8}}};
  const Results read = FromJson(ToJson(results)).value();
  EXPECT_EQ(read.mix_json, "not JSON");
  EXPECT_EQ(read.highest_rate, std::nullopt);
  EXPECT_FALSE(read.first_mismatch.has_value());
  EXPECT_EQ(read.steps[0].held, std::nullopt);
  EXPECT_EQ(read.total.latency, Histogram());
}

TEST(LoadReport, HasFiguresForReadersWithoutALibrary) {
  const json report = json::parse(ToJson(SearchResults()));
  EXPECT_EQ(report["schema"], "posenc.load/1");
  EXPECT_EQ(report["mix"]["calls"][0]["seed"], 18446744073709551615u);
  EXPECT_EQ(report["figures"]["intended_per_second"], 34000.0 / 30);
  EXPECT_EQ(report["total"]["latency_us"]["p99.9"], SearchResults().total.latency.Percentile(99.9));
  EXPECT_EQ(report["steps"][1]["figures"]["offered_per_second"], 1188);
}

TEST(LoadReport, ReplacesWhatIsNotUtf8) {
  Results results = SearchResults();
  results.warnings = {"bad \xff byte"};
  EXPECT_EQ(FromJson(ToJson(results)).value().warnings[0], "bad \xef\xbf\xbd byte");
}

std::string ErrorOf(const std::string& text) {
  const auto results = FromJson(text);
  EXPECT_FALSE(results.ok());
  return std::string(results.status().message());
}

TEST(LoadReport, TellsWhatIsNone) {
  EXPECT_THAT(ErrorOf(""), testing::HasSubstr("report: is the end of the file; must be valid JSON"));
  EXPECT_THAT(ErrorOf("{\"schema\": \"posenc.load/1\""), testing::HasSubstr("must be valid JSON"));
  for (const char* text : {"{}", "[]", "3", "{\"schema\": 1}", "{\"schema\": \"another/1\"}"}) {
    EXPECT_EQ(ErrorOf(text), "is not a report of posenc load") << text;
  }
  EXPECT_EQ(ErrorOf(R"({"schema": "posenc.load/2"})"),
            "schema: is posenc.load/2; this posenc reads only posenc.load/1");
  EXPECT_EQ(ErrorOf(R"({"schema": "posenc.load/1"})"), "begin_time: is missing");
  EXPECT_THAT(ErrorOf(std::string(100000, '[')), testing::HasSubstr("must be at most 64 levels deep"));
}

// The error of a valid report in which `pointer` holds `value` instead.
std::string With(const std::string& pointer, const json& value) {
  static const std::string good = ToJson(SearchResults());
  json report = json::parse(good);
  report[json::json_pointer(pointer)] = value;
  return ErrorOf(report.dump());
}

TEST(LoadReport, TellsWhichFieldIsWrong) {
  EXPECT_EQ(With("/seconds", "x"), "seconds: is x; must be a number");
  EXPECT_EQ(With("/seconds", -1), "seconds: is -1; must not be negative");
  EXPECT_EQ(With("/clients", 0), "clients: is 0; must be 1 to 1,000,000");
  EXPECT_EQ(With("/total/intended", 1.5), "total.intended: is 1.5; must be a whole number from 0 to 2^53");
  EXPECT_EQ(With("/total/failed", uint64_t{1} << 63),
            "total.failed: is 9223372036854775808; must be a whole number from 0 to 2^53");
  EXPECT_EQ(With("/total/errors/OK", nullptr), "total.errors[\"OK\"]: is null; must be a whole number from 0 to 2^53");
  EXPECT_EQ(With("/total/latency_us", 3), "total.latency_us: is 3; must be an object");
  EXPECT_EQ(With("/total/latency_us/hdr_v2", "?"), "total.latency_us.hdr_v2: is ?; is not base64");
  EXPECT_EQ(With("/timeline/7/warm_up", 1), "timeline[7].warm_up: is 1; must be true or false");
  EXPECT_EQ(With("/timeline/7/measured", json::object()), "timeline[7].measured.intended: is missing");
  EXPECT_EQ(With("/steps", json::object()), "steps: must be a list");
  EXPECT_EQ(With("/steps", json::array()), "steps: must hold at least one");
  EXPECT_EQ(With("/steps/2/held", "no"), "steps[2].held: is no; must be true or false");
  EXPECT_EQ(With("/warnings/0", 5), "warnings[0]: is 5; must be a string");
  EXPECT_EQ(With("/settings", 5), "settings: is 5; must be an object");
  EXPECT_EQ(With("/mix", 5), "mix: is 5; must be a string");
  EXPECT_EQ(With("/first_mismatch", json::object()), "first_mismatch.call: is missing");
}

TEST(LoadReport, KeepsAMixThatLooksNested) {
  Results results = SearchResults();
  results.mix_json = std::string(1000, '[');
  EXPECT_EQ(FromJson(ToJson(results)).value().mix_json, results.mix_json);
}

}  // namespace
}  // namespace posenc::load::load_report_json_test
