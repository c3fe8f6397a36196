#include "posenc/base/status.h"

#include <string>

#include <gtest/gtest.h>

namespace posenc {
namespace {

TEST(Quote, KeepsQuotesAndEscapesControlCharacters) {
  EXPECT_EQ(Quote("unexpected '}'; \"a\\b\""), "unexpected '}'; \"a\\b\"");
  EXPECT_EQ(Quote("a\nb\x1b[31m"), "a\\nb\\x1b[31m");
  EXPECT_EQ(Quote("\u009b31m"), "\\xc2\\x9b31m");
  EXPECT_EQ(Quote(Quote("'<f4'\n\"")), Quote("'<f4'\n\""));
}

TEST(Quote, EscapesBytesThatAreNotUtf8) {
  for (const char* text : {"\u00a0\u00e9", "\ud7ff\ue000\uffff", "\U00010000\U0010ffff"}) EXPECT_EQ(Quote(text), text);
  EXPECT_EQ(Quote("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Quote("\xe4\xbd"), "\\xe4\\xbd");  // ends within a character
  EXPECT_EQ(Quote("\xe4\xbd\"\xa0"), "\\xe4\\xbd\"\\xa0");
  EXPECT_EQ(Quote("\xc1\xbf"), "\\xc1\\xbf");                    // U+007F in two bytes
  EXPECT_EQ(Quote("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(Quote("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

TEST(Quote, CutsAtACharacter) {
  EXPECT_EQ(Quote(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(Quote(std::string(65, 'x')), std::string(61, 'x') + "...");
  EXPECT_EQ(Quote("aaaa\n\n\n", 10), "aaaa\\n\\n\\n");
  EXPECT_EQ(Quote("aaaa\n\n\n", 9), "aaaa\\n...");
  EXPECT_EQ(Quote("\u00e9\u00e9\u00e9\u00e9", 7), "\u00e9\u00e9...");
  EXPECT_EQ(Quote("\xff\xff\xff", 11), "\\xff\\xff...");
}

TEST(InvalidArgument, SaysValueAndLimitOfALongField) {
  const absl::Status wrong =
      InvalidArgument("MALFORMED", std::string(2000, 'x'), std::string(2000, '\xff'), std::string(2000, '\xff'));
  const absl::Status status = AtPlace(INT64_MAX, INT64_MAX, Within("model", wrong));
  const ErrorDetails details = DetailsOf(status);
  EXPECT_TRUE(details.field.starts_with("model.x") && details.field.ends_with("x...")) << details.field;
  EXPECT_TRUE(details.limit.starts_with("\\xff") && details.limit.ends_with("...")) << details.limit;
  EXPECT_EQ(status.message(), details.field + ": is " + details.value + "; " + details.limit + " (line " +
                                  details.line + ", column " + details.column + ")");
  EXPECT_LE(status.message().size(), 1024u);
}

}  // namespace
}  // namespace posenc
