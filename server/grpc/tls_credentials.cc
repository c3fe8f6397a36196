#include "server/grpc/tls_credentials.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/version_info.h"

namespace posenc::server {
namespace {

constexpr std::chrono::minutes kMostResumption{10};

// The most bytes of certificates that a client may show. OpenSSL accepts 100 KiB by default, parses them on the thread
// that serves calls before it refuses any, which can take a sixth of a second, and keeps them with the connection.
constexpr long kMostOfClientChain = 8 << 10;

// The most bytes that a client may send until its handshake is complete. OpenSSL accepts a ClientHello of 131,396
// bytes, and keeps it, copies of its parts and, as long as the connection is open, some of these. Clients send less
// than 4 KiB, but 15 KiB if they resume a session with a certificate of 7 KiB, because gRPC's server asks for a second
// ClientHello.
constexpr size_t kMostOfHandshake = 24 << 10;

// OpenSSL calls this for the header of each record, before it reads the rest.
void LimitHandshake(int is_sent, int, int type, const void* header, size_t, SSL* ssl, void*) {
  if (is_sent != 0 || type != SSL3_RT_HEADER || SSL_is_init_finished(ssl) == 1) return;
  const auto* const bytes = static_cast<const uint8_t*>(header);
  const size_t record = size_t{bytes[3]} << 8 | bytes[4];
  // OpenSSL fails if it has nothing to read from.
  if (BIO_number_read(SSL_get_rbio(ssl)) + record > kMostOfHandshake) SSL_set0_rbio(ssl, nullptr);
}

// gRPC has no function for this, and does not give out its SSL_CTX: so OpenSSL calls this one for each new SSL_CTX. It
// has no effect on a gRPC with a copy of OpenSSL of its own.
void LimitHandshakes() {
  const auto limit = [](void* context, void*, CRYPTO_EX_DATA*, int, long, void*) {
    auto* const made = static_cast<SSL_CTX*>(context);
    SSL_CTX_set_max_cert_list(made, kMostOfClientChain);
    SSL_CTX_set_msg_callback(made, LimitHandshake);
#ifdef SSL_OP_NO_RX_CERTIFICATE_COMPRESSION
    // Compressed certificates may be longer.
    SSL_CTX_set_options(made, SSL_OP_NO_RX_CERTIFICATE_COMPRESSION);
#endif
  };
  [[maybe_unused]] static const int index =
      CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_CTX, 0, nullptr, limit, nullptr, nullptr);
}

// gRPC's C++ interface can only watch files: a pair that does not match then refuses connections, and an empty file
// ends the process. Its C interface asks for certificates before each handshake.
class Fetcher {
 public:
  explicit Fetcher(std::shared_ptr<CertificateStore> store) : store_(std::move(store)) {}

  static grpc_ssl_certificate_config_reload_status Fetch(void* fetcher, grpc_ssl_server_certificate_config** config) {
    return static_cast<Fetcher*>(fetcher)->FetchNew(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const Certificates> current = store_->current();
    // Changed credentials invalidate session tickets, with which a client whose certificate has expired could resume.
    const auto now = std::chrono::steady_clock::now();
    if (current == given_ && now < renewed_ + kMostResumption) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{current->key.c_str(), current->chain.c_str()};
    // gRPC 1.51 requires CAs of clients even if it asks for no certificate, and does not use them then.
    const std::string& client_cas = current->client_cas.empty() ? current->chain : current->client_cas;
    *config = grpc_ssl_server_certificate_config_create(client_cas.c_str(), &pair, 1);  // copies
    given_ = std::move(current);
    renewed_ = now;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<CertificateStore> store_;
  std::mutex mutex_;
  std::shared_ptr<const Certificates> given_;  // guarded by mutex_, like renewed_
  std::chrono::steady_clock::time_point renewed_;
};

grpc_server_credentials* MakeCredentials(Fetcher* fetcher, const std::string& client_auth) {
  const grpc_ssl_client_certificate_request_type request =
      client_auth == "required"   ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
      : client_auth == "optional" ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                  : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  // The call below takes ownership of the options.
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetcher::Fetch, fetcher));
}

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 63
// Until gRPC 1.62, a subclass adds itself to a server; later the base class does so with the C credentials.
class CredentialsOfC : public grpc::ServerCredentials {
 public:
  explicit CredentialsOfC(grpc_server_credentials* credentials) : credentials_(credentials) {}
  ~CredentialsOfC() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }
  grpc_server_credentials* const credentials_;
};
#else
using CredentialsOfC = grpc::ServerCredentials;
#endif

// The fetcher is a base class, because the credentials refer to it.
class Credentials final : private Fetcher, public CredentialsOfC {
 public:
  Credentials(std::shared_ptr<CertificateStore> store, const std::string& client_auth)
      : Fetcher(std::move(store)), CredentialsOfC(MakeCredentials(this, client_auth)) {}
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<CertificateStore> store,
                                                        const std::string& client_auth) {
  LimitHandshakes();
  return std::make_shared<Credentials>(std::move(store), client_auth);
}

}  // namespace posenc::server
