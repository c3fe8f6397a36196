#include "posenc/transport/pem.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"

namespace posenc::transport {
namespace {

using std::chrono::system_clock;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
using Certificate = std::unique_ptr<X509, Free>;

constexpr size_t kMaxFileBytes = 1 << 20;

std::string TextOf(const ASN1_STRING& text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(&text)), static_cast<size_t>(ASN1_STRING_length(&text))};
}

std::string TextOfAddress(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int family = bytes.size() == 4 ? AF_INET : AF_INET6;
  if (bytes.size() != 4 && bytes.size() != 16) return "";
  return inet_ntop(family, bytes.data(), text, sizeof(text));
}

// Empty for kinds of names that nobody uses for callers.
std::string TextOf(const GENERAL_NAME& name) {
  switch (name.type) {
    case GEN_DNS: return "dns:" + TextOf(*name.d.dNSName);
    case GEN_URI: return "uri:" + TextOf(*name.d.uniformResourceIdentifier);
    case GEN_EMAIL: return "email:" + TextOf(*name.d.rfc822Name);
    case GEN_IPADD: return "ip:" + TextOfAddress(TextOf(*name.d.iPAddress));
    default: return "";
  }
}

// Declines to ask for a passphrase, which OpenSSL would do on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

std::unique_ptr<BIO, Free> Open(const std::string& pem) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

absl::StatusOr<std::vector<Certificate>> Parse(const std::string& pem) {
  const auto bio = Open(pem);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) certificates.emplace_back(next);
  const auto error = ERR_peek_last_error();
  ERR_clear_error();
  // At the end there is no further start line. Any other error is of a certificate that does not parse.
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return absl::InvalidArgumentError(absl::StrCat("certificate ", certificates.size() + 1, " does not parse as PEM"));
  }
  if (certificates.empty()) return absl::InvalidArgumentError("has no certificate in PEM");
  return certificates;
}

system_clock::time_point TimeOf(const ASN1_TIME* time) {
  std::tm utc = {};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return system_clock::time_point::min();
  // The clock ends in 2262. Certificates may be valid longer, up to the year 9999.
  const time_t most = system_clock::to_time_t(system_clock::time_point::max());
  return system_clock::from_time_t(std::min(timegm(&utc), most));
}

// Returns OpenSSL's reason for the last failure, as the end of an error text, and clears its error queue.
std::string TakeReason() {
  const char* const why = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::StrCat("is not accepted by OpenSSL: ", why == nullptr ? "unknown reason" : why);
}

}  // namespace

std::vector<std::string> NamesOfCertificate(const std::string& base64) {
  std::string der;
  if (!absl::Base64Unescape(base64, &der)) return {};
  const auto* begin = reinterpret_cast<const unsigned char*>(der.data());
  const Certificate certificate(d2i_X509(nullptr, &begin, static_cast<long>(der.size())));  // NOLINT: OpenSSL's type
  if (certificate == nullptr) return {};
  const std::unique_ptr<GENERAL_NAMES, Free> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> found;
  for (int n = 0; names != nullptr && n < sk_GENERAL_NAME_num(names.get()); ++n) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), n);
    if (const std::string text = TextOf(*name); !text.empty()) found.push_back(text);
  }
  return found;
}

std::string UtcOf(system_clock::time_point time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromChrono(time), absl::UTCTimeZone());
}

absl::StatusOr<std::string> ReadPem(const std::string& path, Streams streams) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes, streams);
  if (text.ok() || absl::IsUnavailable(text.status())) return text;
  return absl::InvalidArgumentError(text.status().message());
}

absl::Status CheckCertificates(const std::string& pem) { return Parse(pem).status(); }

absl::Status CheckKey(const std::string& chain, const std::string& key) {
  POSENC_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, Parse(chain));
  const std::unique_ptr<EVP_PKEY, Free> parsed(
      PEM_read_bio_PrivateKey(Open(key).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (parsed == nullptr) return absl::InvalidArgumentError("has no private key in PEM without a passphrase");
  const bool matches = X509_check_private_key(certificates[0].get(), parsed.get()) == 1;
  ERR_clear_error();
  if (!matches) return absl::InvalidArgumentError("is not the key of the certificate");
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_method()));
  if (context != nullptr && SSL_CTX_use_PrivateKey(context.get(), parsed.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(TakeReason());
}

absl::StatusOr<system_clock::time_point> CheckChain(const std::string& chain, system_clock::time_point now) {
  POSENC_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, Parse(chain));
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return absl::UnavailableError(TakeReason());
  system_clock::time_point first = system_clock::time_point::max();
  for (size_t n = 0; n < certificates.size(); ++n) {
    const std::string number = absl::StrCat("certificate ", n + 1);
    const system_clock::time_point not_before = TimeOf(X509_get0_notBefore(certificates[n].get()));
    const system_clock::time_point not_after = TimeOf(X509_get0_notAfter(certificates[n].get()));
    first = std::min(first, not_after);
    if (now < not_before) {
      return absl::InvalidArgumentError(absl::StrCat(number, " is not valid before ", UtcOf(not_before)));
    }
    if (now > not_after) return absl::InvalidArgumentError(absl::StrCat(number, " expired at ", UtcOf(not_after)));
    if (n + 1 < certificates.size() &&
        X509_check_issued(certificates[n + 1].get(), certificates[n].get()) != X509_V_OK) {
      return absl::InvalidArgumentError(number + " is not issued by the certificate that follows it");
    }
    X509* const certificate = certificates[n].get();
    if ((n == 0 ? SSL_CTX_use_certificate(context.get(), certificate)
                : SSL_CTX_add1_chain_cert(context.get(), certificate)) != 1) {
      return absl::InvalidArgumentError(number + " " + TakeReason());
    }
  }
  return first;
}

}  // namespace posenc::transport
