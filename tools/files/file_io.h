// Files that a command's flags name: whole files, and atomic writes. posenc/base/input_file.h reads parts of files.
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

// Reads a file or a stream. Returns INVALID_ARGUMENT if it has more than `limit` bytes. Errors of all functions in this
// header name the file.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);
// Writes the file atomically: on an error the old file is unchanged.
absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace posenc
