#include "tools/load/report_html.h"

#include <nlohmann/json.hpp>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"
#include "tools/load/report_json.h"

namespace posenc::load::load_report_html_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LoadHtml, IsOnePageThatLoadsNothing) {
  const std::string page = ToHtml(SearchResults());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page, Not(HasSubstr(" src=")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
  // Neither the library nor our script contains a tag that ends an element.
  EXPECT_EQ(CountOf(page, "<script"), 4);
  EXPECT_EQ(CountOf(page, "</script"), 4);
  EXPECT_THAT(page, HasSubstr("Chart.js v3"));
  for (const char* id : {"distribution", "search", "latency", "throughput"}) {
    EXPECT_THAT(page, HasSubstr("<canvas id=\"" + std::string(id) + "\""));
  }
}

TEST(LoadHtml, EscapesWhatAUserWrote) {
  const std::string evil = "</script><script>alert('@DATA@')</script>&\"";
  Results results = SearchResults();
  const std::string harmless = ToHtml(results);
  results.warnings = {evil};
  results.settings[evil] = evil;
  results.settings["--slo"] = "p99" + evil + "=5ms";
  results.mix_json = evil;
  results.server_version = results.server_cpu_target = results.begin_time = evil;
  results.steps[0].name = evil;
  results.total.errors[evil] = 3;
  results.first_mismatch = Mismatch{evil, evil, 1, evil, evil};
  const std::string page = ToHtml(results);
  EXPECT_EQ(CountOf(page, "<script"), CountOf(harmless, "<script"));
  EXPECT_EQ(CountOf(page, "</script"), CountOf(harmless, "</script"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;script&gt;alert(&#39;@DATA@&#39;)&lt;/script&gt;&amp;&quot;"));
}

TEST(LoadHtml, HidesNoneOfManyWarnings) {
  Results results = SearchResults();
  results.warnings = {"one", "two", "three"};
  EXPECT_THAT(ToHtml(results), Not(HasSubstr("more warnings")));
  results.warnings.insert(results.warnings.end(), {"four", "five"});
  const std::string page = ToHtml(results);
  EXPECT_EQ(CountOf(page, "<p class=\"warning\">"), 5);
  EXPECT_THAT(page, HasSubstr("<summary>2 more warnings</summary>\n<p class=\"warning\">four</p>"));
}

TEST(LoadHtml, LeavesOutPicturesOfNothing) {
  const std::string page = ToHtml(Results{.steps = {Step{.name = "concurrency 8", .concurrency = 8}}});
  EXPECT_THAT(page, Not(HasSubstr("<canvas id=\"search\"")));
  EXPECT_THAT(page, Not(HasSubstr("<canvas id=\"latency\"")));
  EXPECT_THAT(page, HasSubstr("\">–</td>"));
}

TEST(LoadHtml, DrawsTheDistributionOnAnAxisOfNines) {
  const Results results = SearchResults();
  const json lines = json::parse(PictureData(results))["distribution"];
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(lines[0]["name"], "latency");
  const json& points = lines[0]["points"];
  EXPECT_EQ(points[12]["x"], 10);
  EXPECT_EQ(points[12]["y"], static_cast<double>(results.total.latency.Percentile(90)) / 1000);
  EXPECT_EQ(points[24]["y"], static_cast<double>(results.total.latency.Percentile(99)) / 1000);
  EXPECT_EQ(points.back()["x"], results.total.latency.Count());
  EXPECT_EQ(points.back()["y"], static_cast<double>(results.total.latency.Max()) / 1000);
}

TEST(LoadHtml, DrawsEverySecondAndTheWarmUp) {
  Results results = SearchResults();
  results.timeline[1].warm_up = results.timeline[29].warm_up = true;
  results.timeline[5].measured = Measurement{.counts = {.intended = 4, .skipped = 1, .failed = 3}};
  const json data = json::parse(PictureData(results));
  EXPECT_EQ(data["warm_up"], json({{0, 2}, {29, 30}}));
  ASSERT_EQ(data["timeline"]["p99"].size(), 30);
  EXPECT_EQ(data["timeline"]["p99"][5], json({{"x", 5.5}, {"y", nullptr}}));
  EXPECT_EQ(data["timeline"]["failed"][5]["y"], 3);
  EXPECT_EQ(data["timeline"]["skipped"][5]["y"], 1);
  EXPECT_EQ(data["timeline"]["completed"][29]["y"], 1384);
  EXPECT_EQ(data["timeline"]["started"][29]["y"], 1386);
  EXPECT_EQ(data["timeline"]["intended"][29]["y"], 1400);
}

TEST(LoadHtml, DrawsLongRunsInFewPoints) {
  Results results{.timeline = std::vector<Second>(3601)};
  for (Second& second : results.timeline) {
    second.offered = 10;
    second.completed = 9;
  }
  const json timeline = json::parse(PictureData(results))["timeline"];
  ASSERT_EQ(timeline["completed"].size(), 515);
  EXPECT_EQ(timeline["completed"][514], json({{"x", 3599.5}, {"y", 9}}));
  EXPECT_EQ(timeline["intended"][0], json({{"x", 3.5}, {"y", 10}}));
}

TEST(LoadHtml, MarksStepsAndStalls) {
  const json data = json::parse(PictureData(SteppedResults()));
  ASSERT_EQ(data["steps"].size(), 3);
  EXPECT_EQ(data["steps"][1], json({{"name", "1200/s"}, {"from", 10}, {"to", 20}}));
  EXPECT_EQ(data["stalls"], json({{{"from", 12.5}, {"to", 13.5}, {"text", "no answer for 1.0 s"}}}));
  ASSERT_EQ(data["distribution"].size(), 3);  // the latency of each step
  EXPECT_EQ(data["distribution"][1]["name"], "1200/s");
}

TEST(LoadHtml, DrawsGoodput) {
  Results results = SteppedResults();
  results.peak_per_second = 1500;
  results.steps[2].overload = 10;
  const json overload = json::parse(PictureData(results))["overload"];
  EXPECT_EQ(overload["peak"], 1500);
  ASSERT_EQ(overload["points"].size(), 1);
  EXPECT_EQ(overload["points"][0]["x"], 1400);
  EXPECT_THAT(ToHtml(results), HasSubstr("<canvas id=\"overload\""));
}

TEST(LoadHtml, BeginsWithTitleAndWorkloadAndHoldsTheResults) {
  const Results results = SteppedResults();
  const std::string page = ToHtml(results);
  EXPECT_THAT(page, HasSubstr("<h1>Latency at 800/s, 1200/s, 1400/s</h1>\n<p>ApplyRotary</p>"));
  const std::string begin = "id=\"results\">";
  const size_t at = page.find(begin) + begin.size();
  const json held = json::parse(page.substr(at, page.find("</script>", at) - at));
  EXPECT_EQ(held, json::parse(ToJson(results)));
  EXPECT_FALSE(held.contains("total"));
  EXPECT_EQ(held["steps"][1]["stalls"][0]["seconds"], 1);
}

TEST(LoadHtml, ShowsTheBaselinesVerdict) {
  Results results = SteppedResults();
  results.comparison = BaselineVerdict{.baseline = "old.json", .tolerated = 0.05};
  results.comparison->figures = {{"800/s", "p99 latency, ms", 1, 2, true}};
  EXPECT_THAT(ToHtml(results), HasSubstr("<b class=\"bad\">worse</b> (tolerated: 5.0 %)"));
}

TEST(LoadHtml, DrawsTheSearchInTheOrderOfRates) {
  Results results = SearchResults();
  std::swap(results.steps[0], results.steps[2]);
  const json lines = json::parse(PictureData(results))["search"];
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0]["percentile"], "p99");
  EXPECT_EQ(lines[0]["objective"], 5);
  const json& points = lines[0]["points"];
  ASSERT_EQ(points.size(), 3);
  EXPECT_EQ(points[0]["x"], 800);
  EXPECT_EQ(points[2]["x"], 1400);
  EXPECT_EQ(points[2]["verdict"], "not met");
  EXPECT_EQ(points[2]["y"], static_cast<double>(results.steps[0].measured.service.Percentile(99)) / 1000);
}

json SearchLines(const char* objective) {
  Results results = SearchResults();
  results.settings["--slo"] = objective;
  return json::parse(PictureData(results))["search"];
}

TEST(LoadHtml, DrawsALineForEachPartOfTheObjective) {
  const json lines = SearchLines("p50=200us,p99.9=1.5s,max=2m");
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[0]["objective"], 0.2);
  EXPECT_EQ(lines[1]["percentile"], "p99.9");
  EXPECT_EQ(lines[1]["objective"], 1500);
  EXPECT_EQ(lines[2]["percentile"], "max");
  EXPECT_EQ(lines[2]["objective"], 120000);
  EXPECT_EQ(lines[2]["points"][0]["y"], static_cast<double>(SearchResults().steps[0].measured.service.Max()) / 1000);
}

TEST(LoadHtml, DrawsP99WhereTheObjectiveCannotBeRead) {
  for (const char* text :
       {"", "p99", "p99=", "=5ms", "99=5ms", "p99=5x", "p99=-5ms", "p101=5ms", "px=5ms", "p99=nan"}) {
    const json lines = SearchLines(text);
    ASSERT_EQ(lines.size(), 1) << text;
    EXPECT_EQ(lines[0]["percentile"], "p99") << text;
    EXPECT_FALSE(lines[0].contains("objective")) << text;
  }
}

}  // namespace
}  // namespace posenc::load::load_report_html_test
