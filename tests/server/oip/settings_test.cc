// Settings as JSON: what is too large is refused before protobuf's reader of JSON allocates memory for it.
#include "server/oip/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/v1/rotary.pb.h"
#include "tests/service/call.h"

namespace posenc::server::settings_test {
namespace {

constexpr int64_t kAny = 1 << 20;

absl::Status Parse(const std::string& json, int64_t most_values = kAny) {
  v1::RotarySettings settings;
  return ParseSettings(json, most_values, &settings);
}

std::string Repeated(const std::string& text, int times) {
  std::string result;
  while (times-- > 0) result += text;
  return result;
}

TEST(ParseSettings, HasAtMostSoManyValues) {
  const auto refused = FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "settings");
  for (const char* value : {"{},", "[", "{", "[],", "1,", "\"[\":"})
    EXPECT_THAT(Parse(Repeated(value, 100'001)), refused);
  const std::string begin = "{\"given_frequencies\": {\"inv_freq\": [1";
  const int brackets = 3;
  EXPECT_THAT(Parse(begin + Repeated(",1", 100'000 - brackets) + "]}}"), IsOk());
  EXPECT_THAT(Parse(begin + Repeated(",1", 100'001 - brackets) + "]}}"), refused);
}

TEST(ParseSettings, HasAtMostSoManyLevels) {
  const auto refused = FailsWith(absl::StatusCode::kInvalidArgument, "MALFORMED", "settings");
  EXPECT_THAT(Parse("{\"axial\": {\"axes\": " + Repeated("[", 99)), refused);
  EXPECT_THAT(Parse(Repeated("{\"a\":", 101)), refused);
  // Strings neither open nor close anything.
  EXPECT_THAT(Parse(Repeated("{']}\\']}\"\\\\':", 101)), refused);
  EXPECT_THAT(Parse(Repeated("{\"]}\\\"]}'\":", 101)), refused);
  const std::string type = "{\"rope_parameters\": {\"rope_type\": \"\\\"" + Repeated("[", 200) + "\"}}";
  EXPECT_THAT(Parse(type), IsOk());
}

// The caller of a thread that must not be held up goes on elsewhere.
TEST(ParseSettings, WouldBlock) {
  const std::string json = "{\"rotary_dim\": 8, \"rope_parameters\": {\"mrope_section\": [1, 2, 1]}}";
  EXPECT_THAT(Parse(json, 6), IsOk());
  EXPECT_TRUE(IsWouldBlock(Parse(json, 5)));
  EXPECT_FALSE(IsWouldBlock(Parse(Repeated("[", 100'001), 5))) << "this error needs no other thread";
}

TEST(ParseSettings, CanBeInterrupted) {
  int points = 0;
  const Cancellation count = [&points] { return ++points < 5 ? absl::OkStatus() : absl::CancelledError(); };
  const InterruptionScope scope(&count);
  EXPECT_THROW((void)Parse(std::string(1 << 20, ' ')), ComputationStopped);
}

}  // namespace
}  // namespace posenc::server::settings_test
