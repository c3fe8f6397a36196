// Checks of certificates and keys in PEM, before gRPC sees them: it reports a wrong one late and vaguely, or not at
// all.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/input_file.h"

namespace posenc::transport {

// Returns the PEM text of a file of at most 1 MiB. Errors have no path: UNAVAILABLE if the process has no descriptor or
// memory left, else INVALID_ARGUMENT.
absl::StatusOr<std::string> ReadPem(const std::string& path, Streams streams = Streams::kRefused);

// Returns INVALID_ARGUMENT if the text has no certificate, or one that does not parse.
absl::Status CheckCertificates(const std::string& pem);

// Returns INVALID_ARGUMENT if the key has a passphrase, does not parse, is not the first certificate's, or is not
// accepted by OpenSSL.
absl::Status CheckKey(const std::string& chain, const std::string& key);

// Returns the time when the first certificate of a chain expires. Returns INVALID_ARGUMENT if one is expired, not valid
// yet, not issued by the one that follows it, or not accepted by OpenSSL, for example because it is too weak.
absl::StatusOr<std::chrono::system_clock::time_point> CheckChain(const std::string& chain,
                                                                 std::chrono::system_clock::time_point now);

// The subject alternative names of a certificate, given as DER in base64: "dns:NAME", "uri:URI", "email:ADDRESS",
// "ip:ADDRESS". Empty if it does not parse or has none.
std::vector<std::string> NamesOfCertificate(const std::string& base64);

// The time as 2026-01-31T23:59:59Z.
std::string UtcOf(std::chrono::system_clock::time_point time);

}  // namespace posenc::transport
