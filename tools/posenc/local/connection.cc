// A command without gRPC.
#include "tools/posenc/connection.h"

#include <string>

namespace posenc::command {
namespace {

constexpr char kWithoutServers[] =
    "this build of posenc computes in its own process only; those of the Debian package and of the container image "
    "call servers, and so does the Python package: posenc.connect(\"ADDRESS\")";

}  // namespace

std::function<absl::Status()> AddConnectionFlags(CLI::App& app, GlobalFlags& flags) {
  app.add_option("--server", flags.server, "Not in this build, which computes in its own process only")
      ->type_name("ADDRESS")
      ->envname("POSENC_SERVER");
  return [&flags] {
    return flags.server.empty() ? absl::OkStatus() : UsageError(std::string("--server: ") + kWithoutServers);
  };
}

std::unique_ptr<Backend> Connect(const GlobalFlags& flags) { return ComputeHere(flags.timeout_seconds); }

Subcommand AddLoad(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("load", "Not in this build, which cannot call servers");
  app->allow_extras();
  return {app, [](Session&) { return UsageError(std::string("load: ") + kWithoutServers); }};
}

}  // namespace posenc::command
