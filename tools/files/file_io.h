// Files read at offsets, and files that appear whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc {

// A regular file, open for reading. Errors of all functions here name the file.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // The `count` bytes from `offset`; INVALID_ARGUMENT ("truncated") where the file ends before.
  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t count) const;

 private:
  InputFile(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_;
  uint64_t size_;
};

// Written under another name in the same directory; Commit() renames it into place, over a file that is there already.
// Without Commit() nothing remains: where the file system has files without a name, not even of a killed process.
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

  std::string path_;
  std::string temporary_;
  int descriptor_;
  bool named_;  // whether temporary_ is its name already
};

// The whole file, which must not be larger than `limit` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit);
// All of it, or the file is as it was.
absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace posenc
