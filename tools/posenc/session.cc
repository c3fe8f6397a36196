#include "tools/posenc/session.h"

#include <chrono>

#include "absl/strings/cord.h"
#include "posenc/client/client.h"
#include "posenc/in_process/in_process.h"

namespace posenc::command {
namespace {

constexpr char kUsageMark[] = "posenc/usage";

std::unique_ptr<Backend> MakeBackend(const GlobalFlags& flags) {
  const auto timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout_seconds));
  if (!flags.server.empty()) {
    ClientOptions options;
    options.address = flags.server;
    options.tls = flags.tls;
    if (flags.timeout_seconds > 0) options.timeout = timeout;
    return std::make_unique<Client>(std::move(options));
  }
  InProcessOptions options = WholeMachine();
  if (flags.timeout_seconds > 0) options.timeout = timeout;
  return std::make_unique<InProcess>(options);
}

}  // namespace

Backend& Session::backend() {
  if (backend_ == nullptr) backend_ = MakeBackend(flags_);
  return *backend_;
}

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageMark).has_value(); }

}  // namespace posenc::command
