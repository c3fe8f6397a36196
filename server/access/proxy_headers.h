// Headers that proxies set, and the credentials that a trusted proxy passes on.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "server/access/access.h"

namespace posenc::server {

// Headers that only a trusted proxy may set: the caller's address, and its verified client certificate (DER in base64).
inline constexpr char kProxiedPeer[] = "x-posenc-peer";
inline constexpr char kProxiedCertificate[] = "x-posenc-client-cert";

// True if the header of this name, in lower case, says that a call came by a proxy.
inline bool IsHeaderOfProxy(std::string_view name) {
  static constexpr std::string_view kNames[] = {kProxiedPeer, kProxiedCertificate, "forwarded", "via", "x-real-ip"};
  static constexpr std::string_view kPrefixes[] = {"x-forwarded-", "x-envoy-"};
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(kPrefixes, [name](std::string_view prefix) { return name.starts_with(prefix); });
}

// Credentials of a call over the socket of a trusted proxy, which ends TLS: `certificate` is the value of
// kProxiedCertificate, empty if the caller has shown none. Its callers are never callers of a Unix socket.
CallerCredentials ProxiedCredentials(const std::string& certificate, std::string authorization);

}  // namespace posenc::server
