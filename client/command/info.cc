#include <cstdio>

#include "client/command/deliver.h"
#include "client/command/report.h"
#include "client/command/session.h"
#include "posenc/status.h"

namespace posenc::command {

Subcommand AddInfo(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("info", "Version, methods and limits, of the server or of this program");
  return {app, [](Session& session) -> absl::Status {
            POSENC_ASSIGN_OR_RETURN(const auto response, session.backend().GetServerInfo());
            if (session.json()) return PrintJson(response);
            std::fputs(ServerReport(response).c_str(), stdout);
            return absl::OkStatus();
          }};
}

}  // namespace posenc::command
