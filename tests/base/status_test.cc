#include "posenc/base/status.h"

#include <string>

#include <gtest/gtest.h>

namespace posenc {
namespace {

TEST(Quote, KeepsQuotesAndEscapesControlCharacters) {
  EXPECT_EQ(Quote("unexpected '}'; \"a\\b\""), "unexpected '}'; \"a\\b\"");
  EXPECT_EQ(Quote("a\nb\x1b[31m"), "a\\nb\\033[31m");
  EXPECT_EQ(Quote(Quote("'<f4'\n\"")), Quote("'<f4'\n\""));
}

TEST(Quote, CutsAtACharacter) {
  EXPECT_EQ(Quote(std::string(64, 'x')), std::string(64, 'x'));
  EXPECT_EQ(Quote(std::string(65, 'x')), std::string(61, 'x') + "...");
  EXPECT_EQ(Quote("aaaa\n\n\n", 10), "aaaa\\n\\n\\n");
  EXPECT_EQ(Quote("aaaa\n\n\n", 9), "aaaa\\n...");
  EXPECT_EQ(Quote("\u00e9\u00e9\u00e9\u00e9", 7), "\u00e9\u00e9...");
}

}  // namespace
}  // namespace posenc
