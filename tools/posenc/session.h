// Shared state of all subcommands: where to compute, and how to print.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "posenc/backend/backend.h"
#include "posenc/client/tls.h"

namespace posenc::command {

struct GlobalFlags {
  std::string server;          // empty: compute in this process
  std::optional<Tls> tls;      // absent: the connection is not encrypted
  double timeout_seconds = 0;  // 0: default of the backend
  bool json = false;
  bool yes = false;                // write large results without asking
  bool reports_to_stderr = false;  // standard output gets a tensor
};

class Session {
 public:
  explicit Session(const GlobalFlags& flags) : flags_(flags) {}

  // Created on first use. Before that the process has no threads, so the program may fork. Says what was assumed.
  Backend& backend();
  // Remembers the value of a flag that the user did not give, as it is typed, and why. backend() then prints all of
  // them to standard error, in one line; with --json they are a field of the answer instead (deliver.h).
  void Assume(const std::string& flag, const std::string& value, const std::string& why = "");
  // Returns "layout" and "bshd" for --layout bshd, ..., in the order in which they were assumed.
  const std::vector<std::pair<std::string, std::string>>& assumed() const { return assumed_; }
  bool json() const { return flags_.json; }
  bool remote() const { return !flags_.server.empty(); }
  bool reports_to_stderr() const { return flags_.reports_to_stderr; }
  // Asks the user before a result of more than a tenth of the free disk space is written, or of the free memory is
  // computed. Returns a usage error if the answer is no, or if there is no terminal and no --yes.
  absl::Status AllowWriting(const std::string& path, uint64_t bytes) const;
  absl::Status AllowMemory(double bytes) const;
  const std::string& server() const { return flags_.server; }
  const std::optional<Tls>& tls() const { return flags_.tls; }

  // Exit code of a subcommand that returns OK. Default 0.
  int exit_code() const { return exit_code_; }
  void set_exit_code(int exit_code) { exit_code_ = exit_code; }

 private:
  absl::Status Allow(const std::string& what, double bytes, double free, const char* where) const;

  const GlobalFlags flags_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::pair<std::string, std::string>> assumed_;
  std::string unsaid_;  // of assumed_, for standard error
  int exit_code_ = 0;
};

inline constexpr char kDeviceHelp[] =
    "Device that computes: cpu, cuda, cuda:1, ...; default: the server chooses by size and device speed";

struct Subcommand {
  CLI::App* app;
  std::function<absl::Status(Session&)> run;
};

// Exit codes of all subcommands.
inline constexpr int kDone = 0;         // also: they match, the server is serving
inline constexpr int kNo = 1;           // they differ; the server is not serving; a load test is not as it should be
inline constexpr int kUsage = 2;        // the command line is wrong
inline constexpr int kFailed = 3;       // an error while it ran: a call failed, a file cannot be read or written
inline constexpr int kCannotTell = 4;   // the data do not tell whether they match
inline constexpr int kSameSoftmax = 5;  // the biases differ, but not the attention that causal models compute with them
inline constexpr char kExitCodes[] =
    "Exit code: 0 done, or they match; 1 they differ, or the server is not serving; 2 wrong usage; 3 another error; "
    "4 the data do not tell; 5 biases differ by what softmax cancels";

Subcommand AddInfo(CLI::App& parent);
Subcommand AddExplain(CLI::App& parent);
Subcommand AddCompare(CLI::App& parent);
Subcommand AddTable(CLI::App& parent);
Subcommand AddRope(CLI::App& parent);
Subcommand AddBias(CLI::App& parent);
Subcommand AddEmbedding(CLI::App& parent);
Subcommand AddPositions(CLI::App& parent);
Subcommand AddPlot(CLI::App& parent);
Subcommand AddScores(CLI::App& parent);
Subcommand AddValues(CLI::App& parent);
Subcommand AddDiagnose(CLI::App& parent);
Subcommand AddDiagnoseBias(CLI::App& parent);
Subcommand AddDiagnoseTable(CLI::App& parent);
Subcommand AddVectors(CLI::App& parent);
Subcommand AddHealth(CLI::App& parent);
Subcommand AddLoad(CLI::App& parent);
Subcommand AddServe(CLI::App& parent);
Subcommand AddDemo(CLI::App& parent);

// Replaces this process by the posenc-server beside this program, with the arguments after argv[0], "serve". Returns an
// exit code if there is none.
int Serve(char** argv);

// Marks an error of the command line, as opposed to a failed call: the program points to --help.
absl::Status UsageError(const std::string& message);
bool IsUsageError(const absl::Status& status);

// Marks what was done without an error, but is not as it should be, such as a server that is not serving.
absl::Status AnswerIsNo(const std::string& message);

// Returns the exit code of a subcommand that returns an error.
int ExitCodeOf(const absl::Status& error);

}  // namespace posenc::command
