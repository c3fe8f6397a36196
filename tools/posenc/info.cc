#include "posenc/base/status.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/report.h"
#include "tools/posenc/session.h"

namespace posenc::command {

Subcommand AddInfo(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("info", "Prints version, methods and limits of the server or of this program");
  return {app, [](Session& session) -> absl::Status {
            POSENC_ASSIGN_OR_RETURN(const auto response, session.backend().GetServerInfo());
            if (session.json()) return PrintJson(session, response);
            return PrintReport(ServerReport(response));
          }};
}

}  // namespace posenc::command
