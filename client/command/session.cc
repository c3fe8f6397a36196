#include "client/command/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "absl/strings/cord.h"
#include "client/client.h"
#include "client/in_process.h"

namespace posenc::command {
namespace {

constexpr char kUsage[] = "posenc/usage";

std::unique_ptr<Backend> MakeBackend(const GlobalFlags& flags) {
  const auto timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout_seconds));
  if (!flags.server.empty()) {
    ClientOptions options;
    options.address = flags.server;
    if (flags.timeout_seconds > 0) options.timeout = timeout;
    return std::make_unique<Client>(std::move(options));
  }
  InProcessOptions options;
  // Nobody else's memory is at stake here: half of the machine's, in place of a server's caution.
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  options.limits.max_request_bytes = options.limits.max_output_bytes = memory / 2;
  if (flags.timeout_seconds > 0) options.timeout = timeout;
  return std::make_unique<InProcess>(options);
}

}  // namespace

Session::Session(const GlobalFlags& flags) : flags_(flags), backend_(MakeBackend(flags)) {}

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsage, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsage).has_value(); }

}  // namespace posenc::command
