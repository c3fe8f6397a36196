#include "tools/files/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "posenc/base/input_file.h"
#include "posenc/base/interruption.h"
#include "tests/tools/files/temporary_file.h"
#include "tools/files/printable.h"

namespace posenc::file_io_test {
namespace {

TEST(FileIo, AFileIsReadUpToTheLimit) {
  const std::string path = WriteTemporary("file", "12345678");
  const auto file = InputFile::Open(path, 4);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Read(3, 4).value(), "4567");
  const absl::Status refused =
      absl::InvalidArgumentError("has more than 4 bytes, the most that can be read into memory");
  EXPECT_EQ(file->Read(3, 5).status(), refused);
  EXPECT_EQ(ReadFile(path, 4).status(), refused);
  EXPECT_FALSE(ReadWholeFile(path, 7).ok());
  EXPECT_EQ(ReadWholeFile(path, 8).value(), "12345678");
}

TEST(FileIo, WhatIsNoRegularFileIsNotOpened) {
  const std::string pipe = TemporaryPath("pipe"), link = TemporaryPath("link"), loop = TemporaryPath("loop");
  for (const std::string& path : {pipe, link, loop}) unlink(path.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // without a writer: open() would wait
  ASSERT_EQ(symlink("/dev/zero", link.c_str()), 0);
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  for (const std::string& path : {pipe, link, std::string("/dev/zero"), testing::TempDir()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(path, 1000).status())) << path;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(ReadFile(loop, 1000).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadFile(pipe + "/x", 1000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile("/dev/zero", 1000, Streams::kRead).status())) << "it has no end";
}

TEST(FileIo, AStreamIsReadUpToTheLimit) {
  const std::string pipe = TemporaryPath("pipe");
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const size_t size : {1000, 1001}) {
    std::thread writer([&] { std::ofstream(pipe) << std::string(size, 'x'); });
    const auto read = ReadFile(pipe, 1000, Streams::kRead);
    writer.join();
    EXPECT_EQ(read.ok(), size == 1000) << read.status();
  }
}

TEST(FileIo, AReadEndsWhenNobodyWaitsForIt) {
  const std::string path = WriteTemporary("file", "12345678");
  const auto read = RunInterruptibly([] { return absl::CancelledError(); }, [&] { return ReadFile(path, 8); });
  EXPECT_TRUE(absl::IsCancelled(read.status()));
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
