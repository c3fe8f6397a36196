#include <cstdio>
#include <memory>
#include <string>

#include "posenc/base/status.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

const char* Name(ServingStatus status) {
  switch (status) {
    case ServingStatus::kUnknown: return "UNKNOWN";
    case ServingStatus::kServing: return "SERVING";
    case ServingStatus::kNotServing: return "NOT_SERVING";
    case ServingStatus::kServiceUnknown: return "SERVICE_UNKNOWN";
  }
  return "UNKNOWN";
}

}  // namespace

Subcommand AddHealth(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "health", "Checks a server: exits with 0 if it is serving, with 1 if not, with 3 if none answers");
  const auto service = std::make_shared<std::string>();
  app->add_option("--service", *service, "Name of one of the server's services; default: the whole server")
      ->type_name("NAME");
  return {app, [service](Session& session) -> absl::Status {
            if (!session.remote()) return UsageError("missing: --server ADDRESS, or POSENC_SERVER");
            POSENC_ASSIGN_OR_RETURN(const ServingStatus status, session.backend().CheckHealth(*service));
            std::printf(session.json() ? "{\"status\": \"%s\"}\n" : "%s\n", Name(status));
            return status == ServingStatus::kServing ? absl::OkStatus() : AnswerIsNo("the server is not serving");
          }};
}

}  // namespace posenc::command
