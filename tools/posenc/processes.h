// Other programs that a command starts: the posenc-server beside this program, and posenc itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::command {

// Path of the posenc-server that is installed beside this program.
std::string ServerProgram();

// A folder for temporary files, removed with its content by the destructor.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Create();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

// Converts SIGINT, SIGTERM, SIGHUP and SIGPIPE of this process to the end of Run(), for the rest of the process's life.
void EndProgramsAtSignals();

struct Program {
  std::string path;
  std::vector<std::string> arguments;  // without argv[0]
  std::string folder;                  // working directory; empty: this process's
  std::string server;                  // POSENC_SERVER; empty: unset
  std::string output;                  // file of standard output and standard error; empty: this process's
};

// Runs the program until it ends and returns its exit code. Returns CANCELLED after a signal to this process, and
// INTERNAL if the program cannot be started or ends by a signal.
absl::StatusOr<int> Run(const Program& program);

// A posenc-server on a free port of the loopback interface. It ends with this object, or with this process.
class OwnServer {
 public:
  // Starts ServerProgram() and waits until it listens. `folder` gets its log and the file of its port.
  static absl::StatusOr<OwnServer> Start(const std::string& folder);
  OwnServer(OwnServer&& other) noexcept;
  OwnServer& operator=(OwnServer&&) = delete;
  ~OwnServer() { (void)Stop(); }

  const std::string& address() const { return address_; }
  // Ends the server by SIGTERM and waits for it. Returns INTERNAL if it ended otherwise than cleanly.
  absl::Status Stop();

 private:
  OwnServer(pid_t process, std::string log) : process_(process), log_(std::move(log)) {}
  // Returns INTERNAL with the end of the log.
  absl::Status Failed(const std::string& what) const;

  pid_t process_;  // 0: ended
  std::string log_;
  std::string address_;
};

}  // namespace posenc::command
