// Reads of files at offsets, and atomic writes of files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc {

// True for "-" (standard input or output) and for pipes and devices, such as a shell's <(...) and >(...).
bool IsStream(const std::string& path);

// Returns the free memory in bytes, within the cgroup's limit; 2^64 - 1 if it cannot be read.
uint64_t FreeMemory();

// A file, open for reading; "-" is standard input. A stream is read into memory when it is opened. Errors of all
// functions in this header name the file.
class InputFile {
 public:
  // `limit`: most bytes that a stream may have, and that one Read() may return. The default leaves memory for a copy
  // and for an answer.
  static absl::StatusOr<InputFile> Open(const std::string& path, uint64_t limit = FreeMemory() / 3);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Returns `count` bytes from byte `offset`. Returns INVALID_ARGUMENT if the file ends earlier ("truncated"), or if
  // `count` exceeds the limit.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t count) const;

 private:
  InputFile(std::string path, int descriptor, uint64_t limit)
      : path_(std::move(path)), descriptor_(descriptor), limit_(limit) {}
  absl::Status ReadStream();
  absl::Status TooLong() const;

  std::string path_;
  int descriptor_;
  uint64_t limit_;
  uint64_t size_ = 0;
  std::string content_;  // of a stream
};

// A stream gets the bytes with Commit(), from a temporary file in TMPDIR or /tmp. A file is written under a temporary
// name in the same directory. Commit() renames it to `path`, replacing an existing file. Without Commit() the
// destructor removes it. If the file system supports O_TMPFILE, nothing remains even if the process is killed.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  absl::Status Write(uint64_t offset, std::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, int descriptor, bool named)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor), named_(named) {}
  absl::Status CopyToStream();

  std::string path_;
  std::string temporary_;
  int descriptor_;
  bool named_;  // true if the file already has the name temporary_
};

// Reads the whole file. Returns INVALID_ARGUMENT if it is larger than `limit` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);
// Writes the file atomically: on an error the old file is unchanged.
absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace posenc
