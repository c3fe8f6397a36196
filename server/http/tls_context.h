// TLS of HTTP connections: the certificates of the gRPC listener, with the same limits.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "boost/asio/ssl/context.hpp"
#include "server/listen/certificates.h"

namespace posenc::server {

// `client_auth`: the value of --tls-client-auth. Returns null if OpenSSL takes no more of these certificates, which
// were checked before: for lack of memory.
std::shared_ptr<boost::asio::ssl::context> MakeTlsContext(const Certificates& certificates,
                                                          const std::string& client_auth);

// Names of the verified certificate that the client of a connection has shown: "dns:NAME", ...; "unnamed" if it has
// none. Empty if it has shown no certificate.
std::vector<std::string> NamesOfClient(SSL* connection);

}  // namespace posenc::server
