#include "server/http/tls_context.h"

#include <openssl/x509.h>

#include <string_view>

#include "absl/strings/escaping.h"
#include "boost/asio/buffer.hpp"
#include "posenc/transport/pem.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

namespace ssl = boost::asio::ssl;

constexpr std::string_view kProtocol = "\x08http/1.1";

int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                   unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  const auto* own = reinterpret_cast<const unsigned char*>(kProtocol.data());
  const int result = SSL_select_next_proto(&found, size, own, kProtocol.size(), offered, offered_size);
  *chosen = found;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

std::shared_ptr<ssl::context> MakeTlsContext(const Certificates& certificates, const std::string& client_auth) {
  const auto buffer = [](const std::string& pem) { return boost::asio::buffer(pem.data(), pem.size()); };
  try {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    // No session is resumed: one whose client certificate has expired meanwhile could be.
    context->set_options(ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | SSL_OP_NO_TICKET);
    SSL_CTX* const openssl = context->native_handle();
    SSL_CTX_set_session_cache_mode(openssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(openssl, ChooseProtocol, nullptr);
    context->use_certificate_chain(buffer(certificates.chain));
    context->use_private_key(buffer(certificates.key), ssl::context::pem);
    if (client_auth == "none") return context;
    context->add_certificate_authority(buffer(certificates.client_cas));
    context->set_verify_mode(ssl::verify_peer | (client_auth == "required" ? ssl::verify_fail_if_no_peer_cert : 0));
    return context;
  } catch (const std::exception& error) {
    LogCall(LogLevel::err, "TLS over HTTP", {{"error", error.what()}});
    return nullptr;
  }
}

std::vector<std::string> NamesOfClient(SSL* connection) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(connection), &X509_free);
  if (certificate == nullptr) return {};
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate.get(), &der);
  if (size <= 0) return {"unreadable"};
  const std::string base64 = absl::Base64Escape({reinterpret_cast<const char*>(der), static_cast<size_t>(size)});
  OPENSSL_free(der);
  std::vector<std::string> names = transport::NamesOfCertificate(base64);
  if (names.empty()) names = {"unnamed"};
  return names;
}

}  // namespace posenc::server
