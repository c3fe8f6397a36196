// gRPC credentials of the certificates that a CertificateStore holds now.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/security/server_credentials.h"
#include "server/listen/certificates.h"

namespace posenc::server {

// Each handshake uses the store's certificates of that moment. TLS 1.2 and 1.3. `client_auth`: none, optional (a
// client may have no certificate, but not a wrong one) or required.
// The credentials must outlive the server.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<CertificateStore> store,
                                                        const std::string& client_auth);

}  // namespace posenc::server
