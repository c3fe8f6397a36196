#include "server/trace/trace_context.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace posenc::server::trace_context_test {
namespace {

// The example of W3C's Trace Context, section "Examples of HTTP traceparent Headers".
constexpr std::string_view kExample = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

std::string Replaced(size_t place, char c) {
  std::string text(kExample);
  text[place] = c;
  return text;
}

// The example with these flags.
std::string WithFlags(std::string_view flags) { return std::string(kExample.substr(0, 53)) + std::string(flags); }

TEST(TraceContext, ReadsTheExampleOfTheSpecification) {
  const auto context = ParseTraceparent(kExample);
  ASSERT_TRUE(context);
  EXPECT_EQ(ToHex(context->trace_id.data(), 16), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(ToHex(context->span_id.data(), 8), "00f067aa0ba902b7");
  EXPECT_EQ(context->trace_id[0], 0x4b);
  EXPECT_EQ(context->span_id[7], 0xb7);
  EXPECT_EQ(context->flags, 1);
}

TEST(TraceContext, OnlyTheLowestFlagSaysSampled) {
  for (const auto& [flags, is_sampled] :
       {std::pair("00", false), {"01", true}, {"02", false}, {"03", true}, {"fe", false}, {"ff", true}}) {
    const auto context = ParseTraceparent(WithFlags(flags));
    ASSERT_TRUE(context) << flags;
    EXPECT_EQ(context->is_sampled(), is_sampled) << flags;
  }
  EXPECT_EQ(ParseTraceparent(WithFlags("a7"))->flags, 0xa7);
}

// The headers of W3C's own tests (github.com/w3c/trace-context, test/test.py, test_traceparent_version_0xcc and _0xff,
// test_traceparent_trace_id_all_zero, test_traceparent_parent_id_all_zero).
TEST(TraceContext, LaterVersionsMayAddFields) {
  const std::string ids = "-12345678901234567890123456789012-1234567890123456-01";
  EXPECT_TRUE(ParseTraceparent("00" + ids));
  EXPECT_TRUE(ParseTraceparent("cc" + ids));
  EXPECT_TRUE(ParseTraceparent("cc" + ids + "-what-the-future-will-be-like"));
  EXPECT_FALSE(ParseTraceparent("cc" + ids + ".what-the-future-will-be-like"));
  EXPECT_FALSE(ParseTraceparent("00" + ids + "-what-the-future-will-be-like"));
  EXPECT_FALSE(ParseTraceparent("00" + ids + "-"));
  EXPECT_FALSE(ParseTraceparent("ff" + ids)) << "is no version";
}

TEST(TraceContext, ZeroIsNoId) {
  EXPECT_FALSE(ParseTraceparent("00-00000000000000000000000000000000-1234567890123456-01"));
  EXPECT_FALSE(ParseTraceparent("00-12345678901234567890123456789012-0000000000000000-01"));
  EXPECT_TRUE(ParseTraceparent("00-00000000000000000000000000000001-0000000000000001-00"));
}

TEST(TraceContext, EachCharacterCounts) {
  for (size_t place = 0; place < kExample.size(); ++place) {
    for (const char c : {'g', 'A', ' ', '/', ':', '`', '\0', '\xff'}) {
      EXPECT_FALSE(ParseTraceparent(Replaced(place, c))) << place << ": " << static_cast<int>(c);
    }
    // A dash among the digits, a digit among the dashes.
    EXPECT_FALSE(ParseTraceparent(Replaced(place, kExample[place] == '-' ? '0' : '-'))) << place;
  }
}

TEST(TraceContext, NothingMayLack) {
  for (size_t size = 0; size < kExample.size(); ++size) {
    EXPECT_FALSE(ParseTraceparent(kExample.substr(0, size))) << size;
    EXPECT_FALSE(ParseTraceparent(kExample.substr(kExample.size() - size))) << size;
  }
  EXPECT_FALSE(ParseTraceparent(" " + std::string(kExample)));
  EXPECT_FALSE(ParseTraceparent(std::string(kExample) + " "));
  EXPECT_FALSE(ParseTraceparent(std::string(kExample) + "," + std::string(kExample))) << "the header came twice";
}

TEST(TraceContext, HexHasTwoDigitsForEachByte) {
  const uint8_t bytes[] = {0x00, 0x0f, 0xf0, 0xab};
  EXPECT_EQ(ToHex(bytes, 4), "000ff0ab");
  EXPECT_EQ(ToHex(bytes, 0), "");
}

}  // namespace
}  // namespace posenc::server::trace_context_test
