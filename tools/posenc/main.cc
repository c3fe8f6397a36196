// The `posenc` command: all calls of the service, computed in process or by a server.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "posenc/command_line/arguments.h"
#include "tools/files/file_io.h"
#include "tools/files/printable.h"
#include "tools/posenc/colour.h"
#include "tools/posenc/connection.h"
#include "tools/posenc/environment_file.h"
#include "tools/posenc/help.h"
#include "tools/posenc/messages.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

// Prints the error and, if `app` is not null, how to get its help.
void Complain(const std::string& message, const CLI::App* app) {
  std::fprintf(stderr, "%s %s\n", Coloured(stderr, Colour::kRed, "posenc:").c_str(), Printable(message, "\n").c_str());
  if (app == nullptr) return;
  std::fprintf(stderr, "See `%s --help`.\n", CommandWords(app).c_str());
}

// Opens /dev/null for each standard stream that is closed, so that no file gets its descriptor. Access is the opposite
// of the stream's, so that its use fails as that of a closed one.
void OccupyClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

absl::Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::DataLossError("standard output: cannot write all of the text");
}

// Returns the message of what the standard library throws for lack of memory or of threads.
std::string ExceptionMessage(const std::exception& error) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return memory ? "not enough memory" : std::string("cannot go on: ") + error.what();
}

absl::Status Run(const Subcommand& subcommand, Session& session) {
  try {
    POSENC_RETURN_IF_ERROR(subcommand.run(session));
    return FlushOutput();
  } catch (const std::exception& error) {
    return absl::InternalError(ExceptionMessage(error));
  }
}

// Returns the innermost subcommand that was given.
const CLI::App* Named(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands()[0];
  return app;
}

int Main(int argc, char** argv) {
  if (const absl::Status status = ReadEnvironmentFile(); !status.ok()) {
    Complain(std::string(status.message()), nullptr);
    return kUsage;
  }
  if (argc > 1 && std::string_view(argv[1]) == "serve") return Serve(argv + 1);
  CLI::App app("Computes positional encodings for attention, exactly and reproducibly.", "posenc");
  app.set_version_flag("-V,--version", std::string("posenc ") + kVersion);
  app.formatter(HelpFormatter());
  app.require_subcommand(0, 1);

  GlobalFlags flags;
  const std::function<absl::Status()> read_connection = AddConnectionFlags(app, flags);
  app.add_option("--timeout", flags.timeout_seconds,
                 "Time limit of a call including its retries; default: 60 with --server, none without")
      ->type_name("SECONDS")
      ->check(InRange(0.0, 1e8));
  app.add_flag(
      "--json", flags.json,
      "Print JSON: proto3's JSON mapping, tensors as lists of decimal numbers, and as \"assumed\" the values of "
      "flags that were not given but chosen from the inputs or by default");
  app.add_flag("--yes", flags.yes,
               "Make a result of more than a tenth of the free memory or disk space without asking");

  const std::vector<Subcommand> subcommands = {
      AddExplain(app),  AddCompare(app),      AddTable(app),         AddRope(app),      AddBias(app),
      AddScores(app),   AddValues(app),       AddEmbedding(app),     AddPositions(app), AddPlot(app),
      AddDiagnose(app), AddDiagnoseBias(app), AddDiagnoseTable(app), AddVectors(app),   AddLoad(app),
      AddInfo(app),     AddHealth(app),       AddServe(app),         AddDemo(app),      AddHelp(app),
      AddVersion(app),  AddCompletion(app)};
  AddFooters(app);
  if (argc > 1 && std::string_view(argv[1]) == "complete-word") {
    PrintCandidates(app, argv + 2);
    return kDone;
  }

  const auto misused = [](const std::string& message, const CLI::App* command) {
    Complain(message, command);
    return kUsage;
  };
  std::vector<std::string> arguments = ReversedArguments(argc, argv);
  if (const auto flag = FindFlagWithoutValue(app, arguments)) return misused(flag->message, flag->command);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const std::string message = ParseErrorMessage(*Named(&app), error);  // names an unknown flag before anything else
    const bool of_file = dynamic_cast<const CLI::FileError*>(&error) != nullptr && message == error.what();
    if (!of_file) return misused(message, Named(&app));
    Complain(message, nullptr);
    return kFailed;
  } catch (const std::exception& error) {  // from a flag that reads a file
    Complain(ExceptionMessage(error), nullptr);
    return kFailed;
  }
  const CLI::App* named = Named(&app);
  if (named == &app) {
    std::fputs(app.help().c_str(), stdout);
    return kDone;
  }
  while (named->get_parent() != &app) named = named->get_parent();
  const auto subcommand = std::find_if(subcommands.begin(), subcommands.end(),
                                       [named](const Subcommand& each) { return each.app == named; });
  if (const absl::Status status = read_connection(); !status.ok())
    return misused(std::string(status.message()), nullptr);
  for (const char* name : {"--out", "--q-out", "--k-out"}) {
    const CLI::Option* out = Named(&app)->get_option_no_throw(name);
    if (out != nullptr && out->count() > 0 && IsStream(out->results().back())) flags.reports_to_stderr = true;
  }
  Session session(flags);
  const absl::Status status = Run(*subcommand, session);
  if (status.ok()) return session.exit_code();
  const bool usage = IsUsageError(status);
  const bool flags_explain = usage || (absl::IsInvalidArgument(status) && !DetailsOf(status).field.empty());
  Complain(InWordsOfFlags(*Named(&app), status), flags_explain ? Named(&app) : nullptr);
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace posenc::command

// NOLINTNEXTLINE(bugprone-exception-escape): what nobody caught ends the program with its message.
int main(int argc, char** argv) {
  using posenc::command::Complain, posenc::command::kDone, posenc::command::kFailed;
  posenc::command::OccupyClosedStreams();
  const int exit_code = posenc::command::Main(argc, argv);
  if (exit_code != kDone) return exit_code;
  const absl::Status printed = posenc::command::FlushOutput();  // --help and --version
  if (!printed.ok()) Complain(std::string(printed.message()), nullptr);
  return printed.ok() ? kDone : kFailed;
}
