#include "server/access/proxy_headers.h"

#include <utility>

#include "posenc/transport/pem.h"

namespace posenc::server {

CallerCredentials ProxiedCredentials(const std::string& certificate, std::string authorization) {
  CallerCredentials shown{.names = {}, .authorization = std::move(authorization), .is_private = true};
  if (certificate.empty()) return shown;
  shown.names = transport::NamesOfCertificate(certificate);
  if (shown.names.empty()) shown.names = {"unreadable"};  // fits no pattern: not anonymous
  return shown;
}

}  // namespace posenc::server
