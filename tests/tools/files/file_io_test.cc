#include "tools/files/file_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/files/temporary_file.h"

namespace posenc::file_io_test {
namespace {

using testing::HasSubstr;

TEST(ReadWholeFile, ReadsNoMoreThanItsLimit) {
  const std::string file = WriteTemporary("file", "12345");
  EXPECT_EQ(ReadWholeFile(file, 5).value(), "12345");
  EXPECT_THAT(ReadWholeFile(file, 4).status().message(), HasSubstr("has 5 bytes; at most 4 are allowed"));
  EXPECT_EQ(ReadWholeFile("/dev/zero", 4).status().message(), "/dev/zero: has more than the 4 bytes that are allowed");
}

}  // namespace
}  // namespace posenc::file_io_test
