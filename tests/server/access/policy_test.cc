#include "server/access/policy.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

const std::string kDigest(64, 'a');

TEST(Policy, PatternsFitNames) {
  EXPECT_TRUE(Fits("dns:a.example", "dns:a.example"));
  EXPECT_TRUE(Fits("dns:*.example", "dns:a.example"));
  EXPECT_TRUE(Fits("dns:a*c.example", "dns:abbc.example"));
  EXPECT_TRUE(Fits("dns:*a*a.b", "dns:xaaa.b"));
  EXPECT_TRUE(Fits("uri:spiffe://cluster/ns/*/sa/posenc", "uri:spiffe://cluster/ns/train/sa/posenc"));
  EXPECT_TRUE(Fits("uri:spiffe://a/*", "uri:spiffe://a/b.c@d"));
  EXPECT_TRUE(Fits("email:*@example", "email:a.b@example"));
  EXPECT_TRUE(Fits("ip:10.0.*.*", "ip:10.0.3.4"));
}

TEST(Policy, PatternsDoNotFitOtherNames) {
  EXPECT_FALSE(Fits("dns:*.example", "dns:.example")) << "one character at least";
  EXPECT_FALSE(Fits("dns:*.example", "dns:a.b.example")) << "no separator";
  EXPECT_FALSE(Fits("dns:*", "uri:a")) << "another kind";
  EXPECT_FALSE(Fits("dns:a", "dns:ab"));
  EXPECT_FALSE(Fits("dns:ab", "dns:a"));
  EXPECT_FALSE(Fits("dns:a*", "dns:a"));
  EXPECT_FALSE(Fits("uri:spiffe://a/*", "uri:spiffe://a/b/c"));
  EXPECT_FALSE(Fits("uri:spiffe://a/*", "uri:spiffe://b/c"));
  EXPECT_FALSE(Fits("email:*@example", "email:a@b@example"));
  EXPECT_FALSE(Fits("dns:A.example", "dns:a.example"));
}

// A pattern of many stars takes no exponential time.
TEST(Policy, PatternsOfManyStars) {
  std::string pattern = "dns:";
  for (int n = 0; n < 64; ++n) pattern += "*a";
  EXPECT_FALSE(Fits(pattern, "dns:" + std::string(4096, 'a') + "b"));
}

TEST(Policy, ReadsIdentitiesAndTokens) {
  const auto policy =
      ParsePolicy(R"({"identities": [
      {"name": "train", "certificates": ["dns:*.train"], "allow": ["compute", "stream"], "requests_per_second": 2.5,
       "max_in_flight_requests": 4, "max_in_flight_bytes": 1000, "max_call_cost": 7},
      {"name": "local", "unix_sockets": true, "allow": ["info"]},
      {"name": "all", "anonymous": true}]})",
                  "# comment\n\ntrain " + kDigest + " 2027-01-31T00:00:00Z\n  local " + kDigest + "\r\n");
  ASSERT_TRUE(policy.ok()) << policy.status();
  ASSERT_EQ(policy->identities.size(), 3u);
  const Identity& train = *policy->identities[0];
  EXPECT_TRUE(train.Allows(Right::kCompute) && train.Allows(Right::kStream));
  EXPECT_FALSE(train.Allows(Right::kInfo) || train.Allows(Right::kSharedMemory));
  EXPECT_EQ(train.requests_per_second, 2.5);
  EXPECT_EQ(train.max_in_flight_requests, 4);
  EXPECT_EQ(train.max_call_cost, 7);
  EXPECT_EQ(train.max_in_flight_bytes, 1000);
  EXPECT_EQ(policy->identities[1]->max_in_flight_bytes, Identity::kUnlimited);
  EXPECT_TRUE(policy->identities[2]->anonymous && policy->identities[2]->rights.none());
  ASSERT_EQ(policy->tokens.size(), 2u);
  EXPECT_EQ(policy->tokens[0].identity, policy->identities[0]);
  EXPECT_EQ(policy->tokens[0].digest[31], 0xaa);
  EXPECT_EQ(std::chrono::system_clock::to_time_t(*policy->tokens[0].expiry), 1801353600);
  EXPECT_FALSE(policy->tokens[1].expiry.has_value());
}

TEST(Policy, ListsFieldsThatHaveNoEffect) {
  const auto policy = ParsePolicy(R"({"identities": [
      {"name": "a", "compute_per_second": 0.5, "weight": 2}, {"name": "b"}, {"name": "c", "weight": -1}]})",
                                  "");
  ASSERT_TRUE(policy.ok()) << policy.status();
  const std::vector<std::pair<std::string, std::string>> ignored = {
      {"a", "weight"}, {"a", "compute_per_second"}, {"c", "weight"}};
  EXPECT_EQ(policy->ignored, ignored);
}

struct Bad {
  const char* policy;
  std::string tokens;
  const char* field;
  const char* reason;
};

TEST(Policy, NamesThePlaceOfAnError) {
  const std::string one = R"({"identities": [{"name": "a"}]})";
  const std::string deep = R"({"identities": )" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  std::string place_of_deep = "identities";
  for (int level = 1; level < 64; ++level) place_of_deep += "[0]";
  const Bad bad[] = {
      {"", "", "policy", "MALFORMED"},
      {"[]", "", "policy", "OUT_OF_RANGE"},
      {"{}", "", "identities", "MISSING"},
      {R"({"identities": 1})", "", "identities", "OUT_OF_RANGE"},
      {R"({"identities": [], "more": 1})", "", "more", "UNKNOWN_FIELD"},
      {R"({"identities": [1]})", "", "identities[0]", "OUT_OF_RANGE"},
      {deep.c_str(), "", place_of_deep.c_str(), "MALFORMED"},
      {R"({"identities": [{}]})", "", "identities[0].name", "MISSING"},
      {R"({"identities": [{"name": "a b"}]})", "", "identities[0].name", "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a"}, {"name": "a"}]})", "", "identities[1].name", "CONFLICT"},
      {R"({"identities": [{"name": "a", "name": "b"}]})", "", "identities[0].name", "MALFORMED"},
      {R"({"identities": [{"name": "a", "alow": []}]})", "", "identities[0].alow", "UNKNOWN_FIELD"},
      {R"({"identities": [{"name": "a", "allow": "info"}]})", "", "identities[0].allow", "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "allow": ["info", "root"]}]})", "", "identities[0].allow[1]", "UNKNOWN_VALUE"},
      {R"({"identities": [{"name": "a", "certificates": ["a.b"]}]})", "", "identities[0].certificates[0]", "MALFORMED"},
      {R"({"identities": [{"name": "a", "certificates": ["dns:"]}]})", "", "identities[0].certificates[0]",
       "MALFORMED"},
      {R"({"identities": [{"name": "a", "anonymous": 1}]})", "", "identities[0].anonymous", "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "requests_per_second": 0}]})", "", "identities[0].requests_per_second",
       "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "compute_per_second": "1"}]})", "", "identities[0].compute_per_second",
       "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "weight": "heavy"}]})", "", "identities[0].weight", "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "max_in_flight_bytes": 1.5}]})", "", "identities[0].max_in_flight_bytes",
       "OUT_OF_RANGE"},
      {R"({"identities": [{"name": "a", "max_in_flight_requests": 0}]})", "", "identities[0].max_in_flight_requests",
       "OUT_OF_RANGE"},
      {one.c_str(), "b " + kDigest, "line 1", "UNKNOWN_VALUE"},
      {one.c_str(), "\na " + kDigest.substr(1), "line 2", "MALFORMED"},
      {one.c_str(), "a secret", "line 1", "MALFORMED"},
      {one.c_str(), "a e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "line 1", "UNSUPPORTED"},
      {one.c_str(), "a 01BA4719C80B6FE911B091A7C05124B64EEECE964E09C058EF8F9805DACA546B", "line 1", "UNSUPPORTED"},
      {one.c_str(), "a " + kDigest + " tomorrow", "line 1", "MALFORMED"},
      {one.c_str(), "a " + kDigest + " 2027-01-31T00:00:00Z more", "line 1", "MALFORMED"},
  };
  for (const Bad& file : bad) {
    const auto policy = ParsePolicy(file.policy, file.tokens);
    ASSERT_FALSE(policy.ok()) << std::string_view(file.policy).substr(0, 100) << file.tokens;
    const ErrorDetails details = DetailsOf(policy.status());
    EXPECT_EQ(details.field, file.field) << policy.status();
    EXPECT_EQ(details.reason, file.reason) << policy.status();
    EXPECT_TRUE(details.limit.starts_with("must ")) << policy.status();
  }
}

}  // namespace
}  // namespace posenc::server
