#include "server/access/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "posenc/base/input_file.h"
#include "posenc/base/status.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

constexpr char kPolicyFlag[] = "--policy";
constexpr char kTokensFlag[] = "--token-file";
constexpr uint64_t kMostBytes = 1 << 20;
constexpr std::string_view kScheme = "Bearer ";

absl::StatusOr<std::string> ReadText(std::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (text.ok()) return text;
  const std::string why(text.status().message());
  if (absl::IsUnavailable(text.status())) return Unavailable("OVERLOADED", why);
  return InvalidArgument(absl::IsInvalidArgument(text.status()) ? "UNSUPPORTED" : "NOT_FOUND", flag, path, why);
}

absl::Status Unauthenticated(std::string_view reason, std::string_view limit) {
  ErrorDetails details{std::string(reason), "authorization", std::string(kPresent), std::string(limit)};
  if (reason == "NO_CREDENTIALS") details.value = kAbsent;
  return Restore(absl::StatusCode::kUnauthenticated, "authorization: " + details.limit, details);
}

// Compares with every token in the same time, whether or not one fits.
const Token* FindToken(const Policy& policy, std::string_view secret) {
  Sha256 digest;
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest.data());
  const Token* found = nullptr;
  for (const Token& token : policy.tokens) {
    if (CRYPTO_memcmp(token.digest.data(), digest.data(), digest.size()) == 0) found = &token;
  }
  return found;
}

bool HasFittingName(const Identity& identity, const std::vector<std::string>& names) {
  for (const std::string& pattern : identity.certificates) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return Fits(pattern, name); }))
      return true;
  }
  return false;
}

void LogIgnored(const Policy& policy) {
  for (const auto& [identity, field] : policy.ignored) {
    Log(LogLevel::warn, "policy: this release ignores a field", {{"identity", identity}, {"field", field}});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Load(AccessFiles files) {
  std::unique_ptr<AccessControl> access(new AccessControl(std::move(files)));
  POSENC_ASSIGN_OR_RETURN(access->texts_, access->Read());
  POSENC_ASSIGN_OR_RETURN(Policy policy, access->Parse(access->texts_));
  LogIgnored(policy);
  access->policy_ = std::make_shared<const Policy>(std::move(policy));
  return access;
}

absl::StatusOr<AccessControl::Texts> AccessControl::Read() const {
  Texts texts;
  POSENC_ASSIGN_OR_RETURN(texts.policy, ReadText(kPolicyFlag, files_.policy));
  if (files_.tokens.empty()) return texts;
  POSENC_ASSIGN_OR_RETURN(texts.tokens, ReadText(kTokensFlag, files_.tokens));
  return texts;
}

absl::StatusOr<Policy> AccessControl::Parse(const Texts& texts) const {
  absl::StatusOr<Policy> policy = ParsePolicy(texts.policy, texts.tokens);
  if (policy.ok()) return policy;
  const bool of_tokens = DetailsOf(policy.status()).field.starts_with("line ");
  return InvalidArgument("MALFORMED", of_tokens ? kTokensFlag : kPolicyFlag, of_tokens ? files_.tokens : files_.policy,
                         std::string(policy.status().message()));
}

absl::StatusOr<std::shared_ptr<const Identity>> AccessControl::Identify(const Policy& policy,
                                                                        const CallerCredentials& credentials) const {
  if (!credentials.authorization.empty()) {
    const std::string_view text = credentials.authorization;
    if (!text.starts_with(kScheme)) return Unauthenticated("BAD_CREDENTIALS", "must be \"Bearer \" and a token");
    if (!credentials.is_private) return Unauthenticated("BAD_CREDENTIALS", "must come over TLS or a Unix socket");
    const Token* token = FindToken(policy, text.substr(kScheme.size()));
    if (token == nullptr) return Unauthenticated("BAD_CREDENTIALS", "must be a token of the server's token file");
    if (token->expiry && *token->expiry <= std::chrono::system_clock::now()) {
      return Unauthenticated("BAD_CREDENTIALS", "must be a token that has not expired");
    }
    return token->identity;
  }
  for (const auto& identity : policy.identities) {
    const bool fits = !credentials.names.empty() ? HasFittingName(*identity, credentials.names)
                      : credentials.is_unix      ? identity->unix_sockets
                                                 : identity->anonymous;
    if (fits) return identity;
  }
  if (!credentials.names.empty()) {
    return Unauthenticated("BAD_CREDENTIALS",
                           "must be a token, or the client certificate of an identity of the policy");
  }
  return Unauthenticated("NO_CREDENTIALS", "must be a token, unless the call has a client certificate");
}

absl::StatusOr<std::shared_ptr<const Identity>> AccessControl::Admit(const CallerCredentials& credentials, Right right,
                                                                     std::string_view method) {
  std::shared_ptr<const Policy> policy;
  {
    const std::lock_guard lock(mutex_);
    policy = policy_;
  }
  POSENC_ASSIGN_OR_RETURN(std::shared_ptr<const Identity> identity, Identify(*policy, credentials));
  if (!identity->Allows(right)) return NotAllowed(*identity, right, "method", method);
  if (!IsWithinRate(*identity)) {
    return Unavailable("QUOTA", "more calls a second than the policy allows to " + identity->name);
  }
  return identity;
}

bool AccessControl::IsWithinRate(const Identity& identity) {
  if (identity.requests_per_second == 0) return true;
  const double most = std::max(identity.requests_per_second, 1.0);
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  Rate& rate = rates_.try_emplace(identity.name, Rate{most, now}).first->second;
  const double passed = std::chrono::duration<double>(now - rate.since).count();
  rate = {std::min(most, rate.calls + passed * identity.requests_per_second), now};
  if (rate.calls < 1) return false;
  rate.calls -= 1;
  return true;
}

void AccessControl::Reload() {
  const absl::StatusOr<Texts> read = Read();
  if (!read.ok()) return Fail(read.status());
  if (*read == texts_) {
    last_failure_.clear();
    return;
  }
  // The files are replaced one after the other. If they still change, wait for the next call.
  const absl::StatusOr<Texts> again = Read();
  if (!again.ok()) return Fail(again.status());
  if (!(*again == *read)) return;
  absl::StatusOr<Policy> policy = Parse(*read);
  if (!policy.ok()) return Fail(policy.status());
  texts_ = *read;
  last_failure_.clear();
  ++reloads_;
  Log(LogLevel::info, "policy reloaded",
      {{"identities", policy->identities.size()}, {"tokens", policy->tokens.size()}});
  LogIgnored(*policy);
  auto next = std::make_shared<const Policy>(*std::move(policy));
  const std::lock_guard lock(mutex_);
  policy_ = std::move(next);
}

void AccessControl::Fail(const absl::Status& why) {
  // Without descriptors or memory, nothing is known about the files.
  if (absl::IsUnavailable(why) || why.message() == last_failure_) return;
  last_failure_ = std::string(why.message());
  ++failed_reloads_;
  Log(LogLevel::err, "policy not reloaded; the old one is kept", {{"error", last_failure_}});
}

}  // namespace posenc::server
