#include "tools/files/file_io.h"

#include <gtest/gtest.h>

#include "tests/tools/files/temporary_file.h"
#include "tools/files/printable.h"

namespace posenc::file_io_test {
namespace {

TEST(FileIo, AFileIsReadUpToTheLimit) {
  const std::string path = WriteTemporary("file", "12345678");
  const auto file = InputFile::Open(path, 4);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Read(3, 4).value(), "4567");
  EXPECT_EQ(file->Read(3, 5).status(),
            absl::InvalidArgumentError(path + ": has more than 4 bytes, the most that can be read into memory"));
  EXPECT_FALSE(ReadWholeFile(path, 7).ok());
  EXPECT_EQ(ReadWholeFile(path, 8).value(), "12345678");
}

TEST(FileIo, AStreamIsReadUpToTheLimit) {
  const auto endless = InputFile::Open("/dev/zero", 1000);
  EXPECT_EQ(endless.status(),
            absl::InvalidArgumentError("/dev/zero: has more than 1000 bytes, the most that can be read into memory"));
}

TEST(Printable, HasNoControlCharacters) {
  EXPECT_EQ(Printable("a\x1b[2J\n\x7f"
                      "b\xc2\x9b"
                      "c\xc3\xa9"),
            "a?[2J??b?c\xc3\xa9");
  EXPECT_EQ(Printable("a\r\nb", "\n"), "a?\nb");
}

}  // namespace
}  // namespace posenc::file_io_test
