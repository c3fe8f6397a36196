// Access control: from a call's credentials to the identity of its caller, and to a decision.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/policy.h"

namespace posenc::server {

// Credentials of a call.
struct CallerCredentials {
  std::vector<std::string> names;  // of a verified client certificate: "dns:a.example", "uri:spiffe://a/b", ...
  std::string authorization;       // the header; empty if absent
  bool is_unix = false;            // over a Unix socket
  bool is_private = false;         // over TLS or a Unix socket: a token cannot be overheard
};

struct AccessFiles {
  std::string policy;
  std::string tokens;  // empty: no tokens
};

// Thread-safe, except that only one thread may call Reload().
class AccessControl {
 public:
  struct Counters {
    int64_t reloads = 0;         // changed files that were taken
    int64_t failed_reloads = 0;  // changed files that were not
  };

  // Reads and checks the files. Returns INVALID_ARGUMENT naming --policy or --token-file, the file and the place.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Load(AccessFiles files);

  // Returns the caller's identity if it may make a call that needs `right`, and counts the call against its rate.
  // UNAUTHENTICATED if it has no identity: reason NO_CREDENTIALS, or BAD_CREDENTIALS if what it shows is not known, has
  // expired or could be overheard. PERMISSION_DENIED, reason NOT_ALLOWED, if it lacks the right. UNAVAILABLE, reason
  // QUOTA, above its rate. `method` is for the error's text.
  absl::StatusOr<std::shared_ptr<const Identity>> Admit(const CallerCredentials& credentials, Right right,
                                                        std::string_view method);

  // Reads the files. If they have changed and are valid, they count from now on; otherwise the old ones stay, and the
  // log says why, once for each change.
  void Reload();
  Counters counters() const { return {reloads_, failed_reloads_}; }

 private:
  using Clock = std::chrono::steady_clock;
  // Calls that an identity may still make. They grow with time, up to a second's worth.
  struct Rate {
    double calls = 0;
    Clock::time_point since;
  };
  struct Texts {
    std::string policy, tokens;
    bool operator==(const Texts&) const = default;
  };

  explicit AccessControl(AccessFiles files) : files_(std::move(files)) {}
  absl::StatusOr<Texts> Read() const;
  absl::StatusOr<Policy> Parse(const Texts& texts) const;
  absl::StatusOr<std::shared_ptr<const Identity>> Identify(const Policy& policy,
                                                           const CallerCredentials& credentials) const;
  bool IsWithinRate(const Identity& identity);
  void Fail(const absl::Status& why);

  const AccessFiles files_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Policy> policy_;            // guarded by mutex_
  std::map<std::string, Rate, std::less<>> rates_;  // by identity; guarded by mutex_
  Texts texts_;
  std::string last_failure_;
  std::atomic<int64_t> reloads_{0}, failed_reloads_{0};
};

}  // namespace posenc::server
