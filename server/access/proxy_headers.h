// Headers that proxies set.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

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

}  // namespace posenc::server
