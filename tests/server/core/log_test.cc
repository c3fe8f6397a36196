#include "server/core/log.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

constexpr std::chrono::system_clock::time_point kEpoch{};

TEST(FormatLine, Text) {
  EXPECT_EQ(FormatLine(LogFormat::kText, LogLevel::info, kEpoch, "call",
                       {{"method", "Explain"}, {"bytes_in", 12}, {"id", "a b"}, {"empty", ""}}),
            "1970-01-01T00:00:00.000Z info call method=Explain bytes_in=12 id=\"a b\" empty=\"\"");
}

TEST(FormatLine, Json) {
  EXPECT_EQ(FormatLine(LogFormat::kJson, LogLevel::warn, kEpoch, "call", {{"method", "Explain"}, {"bytes_in", 12}}),
            R"({"time":"1970-01-01T00:00:00.000Z","level":"warning","message":"call",)"
            R"("method":"Explain","bytes_in":12})");
}

TEST(FormatLine, EscapesInText) {
  EXPECT_EQ(FormatLine(LogFormat::kText, LogLevel::info, kEpoch, "call", {{"id", std::string("a\0b", 3)}}),
            "1970-01-01T00:00:00.000Z info call id=\"a\\u0000b\"");
}

TEST(FormatLine, StaysOneValidLineWhateverTheCallerSent) {
  const std::string nasty = std::string("a\"b\\c\nd\0e", 9) + "\xff\xc3" + "\xe2\x80\xa8" + "\x1b[31m";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = FormatLine(format, LogLevel::info, kEpoch, "call", {{"request_id", nasty}});
    for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << line;
  }
  const auto parsed = nlohmann::json::parse(
      FormatLine(LogFormat::kJson, LogLevel::info, kEpoch, nasty, {{"request_id", nasty}}), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_THAT(parsed["request_id"].get<std::string>(), testing::StartsWith("a\"b\\c\nd"));
}

TEST(Log, IsSilentUntilStarted) { EXPECT_FALSE(Logs(LogLevel::err)); }

}  // namespace
}  // namespace posenc::server
