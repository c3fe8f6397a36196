#include "tools/posenc/processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"

extern char** environ;

namespace posenc::command {
namespace {

constexpr uint64_t kMostPortBytes = 16;
constexpr int kCannotStart = 127;  // exit code of a child that could not execute the program, as a shell's

volatile std::sig_atomic_t stopped = 0;

// Returns this process's environment with POSENC_SERVER, without the variables of posenc-server, and with the others of
// posenc set to nothing: a user's file would set those that are absent (environment_file.h).
std::vector<std::string> EnvironmentWith(const std::string& server) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    if (!absl::StartsWith(variable, "POSENC_")) {
      variables.push_back(variable);
    } else if (!absl::StartsWith(variable, "POSENC_SERVER")) {
      variables.push_back(variable.substr(0, variable.find('=')) + "=");
    }
  }
  variables.push_back("POSENC_SERVER=" + server);
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts the program, which ends when this process does.
absl::StatusOr<pid_t> Start(const Program& program) {
  std::vector<std::string> words = {program.path}, variables = EnvironmentWith(program.server);
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  const std::vector<char*> argv = Pointers(&words), environment = Pointers(&variables);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (!program.folder.empty() && chdir(program.folder.c_str()) != 0) _exit(kCannotStart);
  if (!program.output.empty()) {
    const int output = open(program.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (output < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0) _exit(kCannotStart);
  }
  execve(program.path.c_str(), argv.data(), environment.data());
  _exit(kCannotStart);
}

// Waits until the process ends and returns its wait status.
int WaitFor(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    if (stopped) kill(process, SIGTERM);
  }
  return status;
}

}  // namespace

std::string ServerProgram() {
  std::error_code unknown;
  return (std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / "posenc-server").string();
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  std::error_code unknown;
  std::string path = (std::filesystem::temp_directory_path(unknown) / "posenc-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path + ": cannot create");
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

void EndProgramsAtSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stopped = 1; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaction(signal, &action, nullptr);
}

absl::StatusOr<int> Run(const Program& program) {
  POSENC_ASSIGN_OR_RETURN(const pid_t process, Start(program));
  const int status = WaitFor(process);
  if (stopped) return absl::CancelledError("interrupted");
  if (WIFSIGNALED(status)) {
    return absl::InternalError(absl::StrCat(program.path, ": ended by signal ", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == kCannotStart) return absl::InternalError(program.path + ": cannot be started");
  return WEXITSTATUS(status);
}

absl::StatusOr<OwnServer> OwnServer::Start(const std::string& folder) {
  const std::string program = ServerProgram(), port_file = folder + "/port", log = folder + "/server.log";
  if (access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start ", program, ": ", std::strerror(errno), "; the package posenc-server has it"));
  }
  POSENC_ASSIGN_OR_RETURN(const pid_t process,
                          command::Start({.path = program,
                                          .arguments = {"--listen", "127.0.0.1:0", "--port-file", port_file},
                                          .folder = folder,
                                          .output = log}));
  OwnServer server(process, log);
  const absl::Time limit = absl::Now() + absl::Minutes(1);
  while (!stopped) {
    const std::string port = ReadWholeFile(port_file, kMostPortBytes).value_or("");
    if (port.ends_with('\n')) {
      server.address_ = "127.0.0.1:" + port.substr(0, port.size() - 1);
      return server;
    }
    if (waitpid(process, nullptr, WNOHANG) != 0) {
      server.process_ = 0;
      return server.Failed("posenc-server ended at once");
    }
    if (absl::Now() > limit) return server.Failed("posenc-server does not start");
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::CancelledError("interrupted");
}

OwnServer::OwnServer(OwnServer&& other) noexcept
    : process_(std::exchange(other.process_, 0)), log_(std::move(other.log_)), address_(std::move(other.address_)) {}

absl::Status OwnServer::Stop() {
  if (process_ == 0) return absl::OkStatus();
  kill(process_, SIGTERM);
  const int status = WaitFor(std::exchange(process_, 0));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? absl::OkStatus() : Failed("posenc-server did not end cleanly");
}

absl::Status OwnServer::Failed(const std::string& what) const {
  constexpr size_t kShown = 2000;
  std::string log = ReadWholeFile(log_, uint64_t{1} << 24).value_or("");
  if (log.size() > kShown) log.erase(0, log.size() - kShown);
  return absl::InternalError(absl::StrCat(what, log.empty() ? "" : ": ", log));
}

}  // namespace posenc::command
