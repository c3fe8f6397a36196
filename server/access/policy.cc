#include "server/access/policy.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "server/core/refusal.h"

namespace posenc::server {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPolicy = "policy";  // the whole file in errors
constexpr size_t kLongestName = 64;
// Digests of an empty text and of a line end alone, which an unset variable in place of a token makes.
constexpr std::string_view kDigestsOfNothing[] = {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                                                  "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b"};
constexpr double kMostRequests = 1e9;  // a second

absl::Status Wrong(std::string_view reason, const std::string& place, std::string_view value, std::string_view limit) {
  return InvalidArgument(reason, place, value, limit);
}

absl::Status WrongType(const std::string& place, const Json& value, const std::string& type) {
  return Wrong("OUT_OF_RANGE", place, value.dump(-1, ' ', false, Json::error_handler_t::replace),
               std::string("must be ") + type);
}

// Reads the fields of one JSON object, and refuses those that nobody reads.
class Fields {
 public:
  Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  std::string PathOf(const std::string& name) const { return place_.empty() ? name : place_ + "." + name; }
  const Json* Find(const std::string& name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  absl::Status Flag(const std::string& name, bool* value) {
    const Json* json = Find(name);
    if (json == nullptr) return absl::OkStatus();
    if (!json->is_boolean()) return WrongType(PathOf(name), *json, "true or false");
    *value = json->get<bool>();
    return absl::OkStatus();
  }
  absl::Status Texts(const std::string& name, std::vector<std::string>* values) {
    const Json* json = Find(name);
    if (json == nullptr) return absl::OkStatus();
    if (!json->is_array()) return WrongType(PathOf(name), *json, "a list of strings");
    for (size_t n = 0; n < json->size(); ++n) {
      const Json& value = (*json)[n];
      if (!value.is_string()) return WrongType(PathOf(name) + "[" + std::to_string(n) + "]", value, "a string");
      values->push_back(value.get<std::string>());
    }
    return absl::OkStatus();
  }
  absl::Status Count(const std::string& name, int64_t* value) {
    const Json* json = Find(name);
    if (json == nullptr) return absl::OkStatus();
    if (!json->is_number_unsigned() || json->get<uint64_t>() == 0 ||
        json->get<uint64_t>() > static_cast<uint64_t>(Identity::kUnlimited)) {
      return WrongType(PathOf(name), *json, "a whole number above 0");
    }
    *value = json->get<int64_t>();
    return absl::OkStatus();
  }
  absl::Status Number(const std::string& name, double most, double* value) {
    const Json* json = Find(name);
    if (json == nullptr) return absl::OkStatus();
    const double given = json->is_number() ? json->get<double>() : 0;
    if (given <= 0 || given > most) return WrongType(PathOf(name), *json, absl::StrCat("above 0 and at most ", most));
    *value = given;
    return absl::OkStatus();
  }
  absl::Status CheckAllKnown() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name))
        return Wrong("UNKNOWN_FIELD", PathOf(Quote(name)), "", "must be absent: unknown field");
    }
    return absl::OkStatus();
  }

 private:
  const Json& object_;
  const std::string place_;
  std::set<std::string> known_;
};

bool IsName(const std::string& name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), allowed);
}

bool HasKnownKind(std::string_view pattern) {
  for (const std::string_view kind : {"dns:", "uri:", "email:", "ip:"}) {
    if (pattern.starts_with(kind) && pattern.size() > kind.size()) return true;
  }
  return false;
}

absl::Status ReadRights(const std::string& place, const std::vector<std::string>& names, Identity* identity) {
  for (size_t n = 0; n < names.size(); ++n) {
    const auto right = std::find_if(kRights.begin(), kRights.end(), [&](Right r) { return NameOf(r) == names[n]; });
    if (right == kRights.end()) {
      return Wrong("UNKNOWN_VALUE", place + "[" + std::to_string(n) + "]", names[n],
                   "must be one of compute, stream, diagnose, shared_memory, info, reflection, models");
    }
    identity->rights.set(static_cast<size_t>(*right));
  }
  return absl::OkStatus();
}

absl::StatusOr<Identity> ReadIdentity(const Json& json, const std::string& place, Policy* policy) {
  if (!json.is_object()) return WrongType(place, json, "an object");
  Fields fields(json, place);
  Identity identity;
  const Json* name = fields.Find("name");
  if (name == nullptr) return Wrong("MISSING", fields.PathOf("name"), kAbsent, "must be given");
  if (!name->is_string() || !IsName(name->get<std::string>())) {
    return WrongType(fields.PathOf("name"), *name, "1 .. 64 letters, digits, '-', '_' or '.'");
  }
  identity.name = name->get<std::string>();
  POSENC_RETURN_IF_ERROR(fields.Texts("certificates", &identity.certificates));
  for (size_t n = 0; n < identity.certificates.size(); ++n) {
    if (HasKnownKind(identity.certificates[n])) continue;
    return Wrong("MALFORMED", fields.PathOf("certificates") + "[" + std::to_string(n) + "]", identity.certificates[n],
                 "must be dns:NAME, uri:URI, email:ADDRESS or ip:ADDRESS");
  }
  POSENC_RETURN_IF_ERROR(fields.Flag("unix_sockets", &identity.unix_sockets));
  POSENC_RETURN_IF_ERROR(fields.Flag("anonymous", &identity.anonymous));
  std::vector<std::string> rights;
  POSENC_RETURN_IF_ERROR(fields.Texts("allow", &rights));
  POSENC_RETURN_IF_ERROR(ReadRights(fields.PathOf("allow"), rights, &identity));
  POSENC_RETURN_IF_ERROR(fields.Number("requests_per_second", kMostRequests, &identity.requests_per_second));
  for (const char* field : {"weight", "compute_per_second"}) {
    const Json* value = fields.Find(field);
    if (value == nullptr) continue;
    if (!value->is_number()) return WrongType(fields.PathOf(field), *value, "a number");
    policy->ignored.emplace_back(identity.name, field);
  }
  POSENC_RETURN_IF_ERROR(fields.Count("max_in_flight_requests", &identity.max_in_flight_requests));
  POSENC_RETURN_IF_ERROR(fields.Count("max_in_flight_bytes", &identity.max_in_flight_bytes));
  POSENC_RETURN_IF_ERROR(fields.Count("max_call_cost", &identity.max_call_cost));
  POSENC_RETURN_IF_ERROR(fields.CheckAllKnown());
  return identity;
}

absl::Status ReadIdentities(const Json& json, Policy* policy) {
  Fields fields(json, "");
  const Json* identities = fields.Find("identities");
  POSENC_RETURN_IF_ERROR(fields.CheckAllKnown());
  if (identities == nullptr) return Wrong("MISSING", "identities", kAbsent, "must be given");
  if (!identities->is_array()) return WrongType("identities", *identities, "a list");
  if (identities->size() > Policy::kMostIdentities) {
    return Wrong("OUT_OF_RANGE", "identities", std::to_string(identities->size()) + " entries",
                 "must have at most " + std::to_string(Policy::kMostIdentities) + " entries");
  }
  std::set<std::string> names;
  for (size_t n = 0; n < identities->size(); ++n) {
    const std::string place = "identities[" + std::to_string(n) + "]";
    POSENC_ASSIGN_OR_RETURN(Identity identity, ReadIdentity((*identities)[n], place, policy));
    if (!names.insert(identity.name).second) {
      return Wrong("CONFLICT", place + ".name", identity.name, "must differ from the names of other identities");
    }
    policy->identities.push_back(std::make_shared<const Identity>(std::move(identity)));
  }
  return absl::OkStatus();
}

absl::Status ReadToken(const std::string& place, const std::string& line, Policy* policy) {
  std::istringstream words(line);
  std::string name, digest, expiry, more;
  words >> name >> digest >> expiry >> more;
  Token token;
  for (const auto& identity : policy->identities) {
    if (identity->name == name) token.identity = identity;
  }
  if (token.identity == nullptr) {
    return Wrong("UNKNOWN_VALUE", place, name, "must begin with the name of an identity of the policy");
  }
  const bool hex = digest.size() == 64 && digest.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (!hex || !more.empty()) {
    return Wrong("MALFORMED", place, digest, "must be NAME SHA256 [EXPIRY], where SHA256 has 64 hex digits");
  }
  for (size_t n = 0; n < token.digest.size(); ++n) {
    std::from_chars(&digest[2 * n], &digest[2 * n] + 2, token.digest[n], 16);
  }
  if (std::ranges::find(kDigestsOfNothing, absl::AsciiStrToLower(digest)) != std::end(kDigestsOfNothing)) {
    return Wrong("UNSUPPORTED", place, digest, "must be the digest of a token: this one is of an empty text");
  }
  if (!expiry.empty()) {
    absl::Time time;
    if (std::string error; !absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", expiry, &time, &error)) {
      return Wrong("MALFORMED", place, expiry, "must expire at a time like 2027-01-31T00:00:00Z");
    }
    token.expiry = absl::ToChronoTime(time);
  }
  policy->tokens.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status ReadTokens(const std::string& text, Policy* policy) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string place = "line " + std::to_string(number);
    POSENC_RETURN_IF_ERROR(ReadToken(place, line, policy));
    if (policy->tokens.size() > Policy::kMostTokens) {
      return Wrong("OUT_OF_RANGE", place, "", "must be at most " + std::to_string(Policy::kMostTokens) + " tokens");
    }
  }
  return absl::OkStatus();
}

// The characters that '*' does not stand for, by the kind of name.
char Separator(std::string_view name) {
  return name.starts_with("uri:") ? '/' : name.starts_with("email:") ? '@' : '.';
}

// True if a part without separators fits. If the text after a '*' does not fit, only the last '*' takes one character
// more, so that the time is at most the product of both sizes.
bool PartFits(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, after_star = std::string_view::npos, retry = 0;
  while (t < text.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*' && t < text.size()) {
      after_star = ++p;
      retry = ++t;  // one character at least
    } else if (p < pattern.size() && t < text.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (after_star != std::string_view::npos && retry < text.size()) {
      p = after_star;
      t = ++retry;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string_view NameOf(Right right) {
  switch (right) {
    case Right::kCompute: return "compute";
    case Right::kStream: return "stream";
    case Right::kDiagnose: return "diagnose";
    case Right::kSharedMemory: return "shared_memory";
    case Right::kInfo: return "info";
    case Right::kReflection: return "reflection";
    case Right::kModels: return "models";
  }
  __builtin_unreachable();
}

absl::StatusOr<Policy> ParsePolicy(const std::string& policy, const std::string& tokens) {
  Policy parsed;
  Json json;
  POSENC_RETURN_IF_ERROR(Renamed(ParseJson(policy, "", &json), [](const std::string& place) {
    return place.empty() ? std::string(kPolicy) : place;
  }));
  if (!json.is_object()) return WrongType(std::string(kPolicy), json, "an object");
  POSENC_RETURN_IF_ERROR(ReadIdentities(json, &parsed));
  POSENC_RETURN_IF_ERROR(ReadTokens(tokens, &parsed));
  return parsed;
}

bool Fits(std::string_view pattern, std::string_view name) {
  const char separator = Separator(pattern);
  for (;;) {
    const size_t pattern_end = pattern.find(separator), name_end = name.find(separator);
    if (!PartFits(pattern.substr(0, pattern_end), name.substr(0, name_end))) return false;
    if (pattern_end == std::string_view::npos || name_end == std::string_view::npos) return pattern_end == name_end;
    pattern.remove_prefix(pattern_end + 1);
    name.remove_prefix(name_end + 1);
  }
}

absl::Status NotAllowed(const Identity& identity, Right right, std::string_view field, std::string_view value) {
  return Refusal(absl::StatusCode::kPermissionDenied, "NOT_ALLOWED", field, value,
                 absl::StrCat("must be what the policy allows to ", identity.name, ", which lacks the right ",
                              std::string(NameOf(right))));
}

}  // namespace posenc::server
