// Reads of files by their paths: the only place that opens a file whose path somebody gives, and reads it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc {

// Kinds of files, besides regular ones, that a path may name.
enum class Streams {
  kRefused,  // nothing: whoever reads it would wait for as long as it pleases its writer
  kRead,     // pipes, terminals, and "-" for standard input: for the arguments of a command
};

// A file, open for reading. A stream is read into memory when it is opened. Errors do not name the file: NOT_FOUND,
// PERMISSION_DENIED if the system refuses, UNAVAILABLE if descriptors or memory are lacking or the file becomes shorter
// while it is read, INVALID_ARGUMENT for what is no file and for what is too large.
class InputFile {
 public:
  // Follows links. Waits for nothing but the file system, and for the writer of a stream that may be read. `limit`: the
  // most bytes that a stream may have, and that one Read() returns.
  static absl::StatusOr<InputFile> Open(const std::string& path, uint64_t limit, Streams streams = Streams::kRefused);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }  // "standard input" for "-"
  uint64_t size() const { return size_; }            // bytes, when the file was opened
  // Returns `count` bytes from byte `offset`. Has an interruption point in each MiB.
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

// Returns the bytes of a file. INVALID_ARGUMENT if it has more than `limit`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit, Streams streams = Streams::kRefused);

}  // namespace posenc
