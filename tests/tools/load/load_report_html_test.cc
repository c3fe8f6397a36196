#include "tools/load/report_html.h"

#include <nlohmann/json.hpp>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/load/load_results.h"

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
  EXPECT_EQ(CountOf(page, "<script"), 3);
  EXPECT_EQ(CountOf(page, "</script"), 3);
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
  EXPECT_THAT(page, Not(HasSubstr("alert('")));
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
  EXPECT_THAT(page, HasSubstr("<td>–</td>"));
}

TEST(LoadHtml, DrawsTheDistributionOnAnAxisOfNines) {
  const Results results = SearchResults();
  const json lines = json::parse(PictureData(results))["distribution"];
  ASSERT_EQ(lines.size(), 4);
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
  EXPECT_EQ(data["timeline"]["errors"][5]["y"], 4);
  EXPECT_EQ(data["timeline"]["achieved"][29]["y"], 1384);
  EXPECT_EQ(data["timeline"]["intended"][29]["y"], 1400);
}

TEST(LoadHtml, DrawsLongRunsInFewPoints) {
  Results results{.timeline = std::vector<Second>(3601)};
  for (Second& second : results.timeline) {
    second.offered = 10;
    second.measured.counts.succeeded = 9;
  }
  const json timeline = json::parse(PictureData(results))["timeline"];
  ASSERT_EQ(timeline["achieved"].size(), 515);
  EXPECT_EQ(timeline["achieved"][514], json({{"x", 3599.5}, {"y", 9}}));
  EXPECT_EQ(timeline["intended"][0], json({{"x", 3.5}, {"y", 10}}));
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
  EXPECT_EQ(points[2]["held"], false);
  EXPECT_EQ(points[2]["y"], static_cast<double>(results.steps[0].measured.latency.Percentile(99)) / 1000);
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
  EXPECT_EQ(lines[2]["points"][0]["y"], static_cast<double>(SearchResults().steps[0].measured.latency.Max()) / 1000);
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
