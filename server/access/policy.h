// The policy file and the token file: who may call what, and how much of the server each caller may hold.
//
// The policy is JSON: {"identities": [{...}, ...]}. Each identity has
//   name                    text of 1 .. 64 letters, digits, '-', '_', '.'; different for each
//   certificates            list of patterns for the subject alternative names of client certificates: "dns:NAME",
//                           "uri:URI", "email:ADDRESS", "ip:ADDRESS". '*' stands for one or more characters other than
//                           '.' in a dns name, '/' in a URI, '@' in an address
//   unix_sockets            true: whoever can open a Unix socket of --listen, without a token
//   anonymous               true: whoever shows neither a token nor a certificate, over TCP
//   allow                   list of rights: "compute", "stream", "diagnose", "shared_memory", "info", "reflection",
//                           "models"
//   requests_per_second     limit of the calls that begin, and of the requests of ModelStreamInfer; the calls of one
//                           second may come at once. Absent: none
//   max_in_flight_requests, max_in_flight_bytes   limits of what its calls hold together. Absent: the server's own
//   max_call_cost           limit of the slow steps of one call. Absent: the server's own
//   weight, compute_per_second   numbers, which older releases know: ignored
// The token file has a line for each token: NAME SHA256 [EXPIRY]. NAME is an identity's; SHA256 is the digest of the
// token, in hex; EXPIRY is like 2027-01-31T00:00:00Z. Lines may be empty or begin with '#'.
#pragma once

#include <array>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::server {

enum class Right { kCompute, kStream, kDiagnose, kSharedMemory, kInfo, kReflection, kModels };
inline constexpr std::array kRights = {Right::kCompute, Right::kStream,     Right::kDiagnose, Right::kSharedMemory,
                                       Right::kInfo,    Right::kReflection, Right::kModels};
std::string_view NameOf(Right right);

struct Identity {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  std::string name;
  std::vector<std::string> certificates;
  bool unix_sockets = false;
  bool anonymous = false;
  std::bitset<kRights.size()> rights;
  double requests_per_second = 0;  // 0: no limit
  int64_t max_in_flight_requests = kUnlimited;
  int64_t max_in_flight_bytes = kUnlimited;
  int64_t max_call_cost = kUnlimited;

  bool Allows(Right right) const { return rights[static_cast<size_t>(right)]; }
};

using Sha256 = std::array<uint8_t, 32>;

struct Token {
  Sha256 digest;
  std::shared_ptr<const Identity> identity;
  std::optional<std::chrono::system_clock::time_point> expiry;
};

struct Policy {
  static constexpr size_t kMostIdentities = 256;
  static constexpr size_t kMostTokens = 1024;

  std::vector<std::shared_ptr<const Identity>> identities;  // in the file's order: the first that fits counts
  std::vector<Token> tokens;
  std::vector<std::pair<std::string, std::string>> ignored;  // an identity's name, and its field without effect
};

// Parses the texts of both files. Returns INVALID_ARGUMENT naming the place: "identities[2].allow[0]", "line 3".
absl::StatusOr<Policy> ParsePolicy(const std::string& policy, const std::string& tokens);

// True if a name of a certificate, e.g. "uri:spiffe://a/b", fits a pattern of Identity::certificates.
bool Fits(std::string_view pattern, std::string_view name);

// PERMISSION_DENIED, reason NOT_ALLOWED: the identity lacks the right that the field's value needs.
absl::Status NotAllowed(const Identity& identity, Right right, std::string_view field, std::string_view value);

}  // namespace posenc::server
