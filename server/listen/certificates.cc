#include "server/listen/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"
#include "server/core/descriptor.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

using std::chrono::system_clock;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr char kCertificateFlag[] = "--tls-cert";
constexpr char kKeyFlag[] = "--tls-key";
constexpr char kClientCaFlag[] = "--tls-client-ca";

absl::Status BadFile(std::string_view flag, const std::string& path, std::string_view why) {
  return InvalidArgument("MALFORMED", flag, path, why);
}

// Declines to ask for a passphrase, which OpenSSL would do on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

absl::StatusOr<std::string> ReadFile(std::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("UNSUPPORTED", flag, path, "cannot be read: " + TextOf(errno));
  std::string bytes(kMaxFileBytes + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return InvalidArgument("UNSUPPORTED", flag, path, "cannot be read");
  if (bytes.size() > kMaxFileBytes) return InvalidArgument("TOO_LARGE", flag, path, "has more than 1 MiB");
  return bytes;
}

std::unique_ptr<BIO, Free> Open(const std::string& pem) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(std::string_view flag, const std::string& path,
                                                           const std::string& pem) {
  const auto bio = Open(pem);
  std::vector<Certificate> certificates;
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) certificates.emplace_back(next);
  const auto error = ERR_peek_last_error();
  ERR_clear_error();
  // At the end there is no further start line. Any other error is of a certificate that does not parse.
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return BadFile(flag, path, "certificate " + std::to_string(certificates.size() + 1) + " does not parse as PEM");
  }
  if (certificates.empty()) return BadFile(flag, path, "has no certificate in PEM");
  return certificates;
}

system_clock::time_point TimeOf(const ASN1_TIME* time) {
  std::tm utc = {};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return system_clock::time_point::min();
  return system_clock::from_time_t(timegm(&utc));
}

std::string UtcOf(system_clock::time_point time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromChrono(time), absl::UTCTimeZone());
}

// Checks chain and key, and sets not_after.
absl::Status Check(const TlsFiles& files, system_clock::time_point now, Certificates* certificates) {
  POSENC_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                          ParseCertificates(kCertificateFlag, files.certificate, certificates->chain));
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(Open(certificates->key).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) return BadFile(kKeyFlag, files.key, "has no private key in PEM without a passphrase");
  const bool matches = X509_check_private_key(chain[0].get(), key.get()) == 1;
  ERR_clear_error();
  if (!matches) return BadFile(kKeyFlag, files.key, "is not the key of the certificate in " + files.certificate);
  for (size_t n = 0; n < chain.size(); ++n) {
    const std::string number = "certificate " + std::to_string(n + 1);
    const system_clock::time_point not_before = TimeOf(X509_get0_notBefore(chain[n].get()));
    const system_clock::time_point not_after = TimeOf(X509_get0_notAfter(chain[n].get()));
    if (n == 0 || not_after < certificates->not_after) certificates->not_after = not_after;
    if (now < not_before) {
      return BadFile(kCertificateFlag, files.certificate, number + " is not valid before " + UtcOf(not_before));
    }
    if (now > not_after) {
      return BadFile(kCertificateFlag, files.certificate, number + " expired at " + UtcOf(not_after));
    }
    if (n + 1 < chain.size() && X509_check_issued(chain[n + 1].get(), chain[n].get()) != X509_V_OK) {
      return BadFile(kCertificateFlag, files.certificate, number + " is not issued by the certificate that follows it");
    }
  }
  return absl::OkStatus();
}

// Reads the files, and checks the client CAs.
absl::StatusOr<Certificates> ReadFiles(const TlsFiles& files) {
  Certificates read;
  POSENC_ASSIGN_OR_RETURN(read.chain, ReadFile(kCertificateFlag, files.certificate));
  POSENC_ASSIGN_OR_RETURN(read.key, ReadFile(kKeyFlag, files.key));
  for (const std::string& path : files.client_cas) {
    POSENC_ASSIGN_OR_RETURN(const std::string cas, ReadFile(kClientCaFlag, path));
    POSENC_RETURN_IF_ERROR(ParseCertificates(kClientCaFlag, path, cas).status());
    read.client_cas += cas + '\n';
  }
  return read;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CertificateStore>> CertificateStore::Load(TlsFiles files) {
  std::shared_ptr<CertificateStore> store(new CertificateStore(std::move(files)));
  POSENC_ASSIGN_OR_RETURN(Certificates read, ReadFiles(store->files_));
  POSENC_RETURN_IF_ERROR(Check(store->files_, system_clock::now(), &read));
  store->current_ = std::make_shared<const Certificates>(std::move(read));
  return store;
}

std::shared_ptr<const Certificates> CertificateStore::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void CertificateStore::Reload() {
  absl::StatusOr<Certificates> read = ReadFiles(files_);
  if (!read.ok()) return Fail(read.status());
  if (read->HasFilesOf(*current())) {
    last_failure_.clear();
    return;
  }
  // The files are replaced one after another. If they still change, wait for the next call.
  const absl::StatusOr<Certificates> again = ReadFiles(files_);
  if (!again.ok()) return Fail(again.status());
  if (!read->HasFilesOf(*again)) return;
  if (const absl::Status status = Check(files_, system_clock::now(), &*read); !status.ok()) {
    return Fail(status);
  }
  Log(LogLevel::info, "certificate reloaded", {{"file", files_.certificate}, {"not_after", UtcOf(read->not_after)}});
  ++reloads_;
  last_failure_.clear();
  auto next = std::make_shared<const Certificates>(*std::move(read));
  const std::lock_guard lock(mutex_);
  current_ = std::move(next);
}

void CertificateStore::Fail(const absl::Status& why) {
  if (why.message() == last_failure_) return;
  last_failure_ = std::string(why.message());
  ++failed_reloads_;
  Log(LogLevel::err, "certificate not reloaded; the old one is kept", {{"error", last_failure_}});
}

}  // namespace posenc::server
