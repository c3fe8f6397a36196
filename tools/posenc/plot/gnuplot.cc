#include "tools/posenc/plot/gnuplot.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"
#include "tools/posenc/session.h"

extern char** environ;

namespace posenc::command {
namespace {

// An anonymous in-memory file (memfd). Files instead of pipes cannot deadlock: neither process waits for the other.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("posenc-plot", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }

  bool Fill(const std::string& text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(descriptor_, text.data() + done, text.size() - done);
      if (written <= 0) return false;
      done += written;
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }

  std::string Contents() const {
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0) return "";
    std::string text(status.st_size, '\0');
    const ssize_t got = pread(descriptor_, text.data(), text.size(), 0);
    text.resize(got > 0 ? got : 0);
    return text;
  }

 private:
  const int descriptor_;
};

// Runs gnuplot on the script and returns its standard output.
absl::StatusOr<std::string> Run(const std::string& script) {
  const MemoryFile in, out, error;
  if (in.descriptor() < 0 || out.descriptor() < 0 || error.descriptor() < 0 || !in.Fill(script)) {
    return absl::ErrnoToStatus(errno, "cannot pass the picture's data to gnuplot");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.descriptor(), STDERR_FILENO);
  char name[] = "gnuplot", defaults[] = "-d", standard_input[] = "-";  // -d: ignore the user's settings
  char* const arguments[] = {name, defaults, standard_input, nullptr};
  pid_t process = 0;
  const int failure = posix_spawnp(&process, name, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure == ENOENT) {
    return absl::FailedPreconditionError(
        "gnuplot, which draws the pictures, is not installed; on Debian: apt install gnuplot-nox");
  }
  if (failure != 0) return absl::ErrnoToStatus(failure, "cannot start gnuplot");
  int ended = 0;
  while (waitpid(process, &ended, 0) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "cannot wait for gnuplot");
  }
  std::string picture = out.Contents();
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0 || picture.empty()) {
    const std::string said(absl::StripAsciiWhitespace(error.Contents()));
    return absl::InternalError(absl::StrCat("gnuplot failed: ", Quote(said, 400)));
  }
  return picture;
}

}  // namespace

absl::StatusOr<PictureFormat> FormatOf(const std::string& path) {
  if (absl::EndsWithIgnoreCase(path, ".png") || IsStream(path)) return PictureFormat::kPng;
  if (absl::EndsWithIgnoreCase(path, ".svg")) return PictureFormat::kSvg;
  return UsageError(Quote(path) + ": the name of a picture must end in .png or .svg");
}

absl::Status Draw(const std::string& commands, const Canvas& canvas, PictureFormat format, const std::string& path) {
  const char* terminal = format == PictureFormat::kSvg ? "svg" : canvas.few_colours ? "png" : "pngcairo";
  const std::string script = absl::StrFormat(
      "set encoding utf8\nset terminal %s noenhanced size %d,%d font 'sans,11' background '#FFFFFF'\n%s", terminal,
      canvas.width, canvas.height, commands);
  POSENC_ASSIGN_OR_RETURN(std::string picture, Run(script));
  // Pixelated rendering keeps browsers from blurring the cells of a heat map.
  if (format == PictureFormat::kSvg) {
    absl::StrReplaceAll({{"<image ", "<image style='image-rendering:pixelated' "}}, &picture);
  }
  return WriteWholeFile(path, picture);
}

std::string Quoted(const std::string& text) {
  // In a single-quoted gnuplot string only single quotes are special.
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "'.\"\\n\".'";
    } else if (c == '\'') {
      quoted += "''";
    } else {
      quoted += absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
    }
  }
  return quoted + "'";
}

}  // namespace posenc::command
