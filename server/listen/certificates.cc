#include "server/listen/certificates.h"

#include <string_view>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/transport/pem.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

using std::chrono::system_clock;

constexpr char kCertificateFlag[] = "--tls-cert";
constexpr char kKeyFlag[] = "--tls-key";
constexpr char kClientCaFlag[] = "--tls-client-ca";

// Names flag and file in an error of their contents.
absl::Status Naming(std::string_view flag, const std::string& path, const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return InvalidArgument("MALFORMED", flag, path, std::string(status.message()));
}

absl::StatusOr<std::string> Read(std::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> pem = transport::ReadPem(path);
  if (!pem.ok()) return Naming(flag, path, pem.status());
  return pem;
}

absl::StatusOr<Certificates> ReadFiles(const TlsFiles& files) {
  Certificates read;
  POSENC_ASSIGN_OR_RETURN(read.chain, Read(kCertificateFlag, files.certificate));
  POSENC_ASSIGN_OR_RETURN(read.key, Read(kKeyFlag, files.key));
  for (const std::string& path : files.client_cas) {
    POSENC_ASSIGN_OR_RETURN(const std::string cas, Read(kClientCaFlag, path));
    POSENC_RETURN_IF_ERROR(Naming(kClientCaFlag, path, transport::CheckCertificates(cas)));
    read.client_cas += cas + '\n';
  }
  return read;
}

// Checks chain and key, and sets not_after.
absl::Status Check(const TlsFiles& files, Certificates* certificates) {
  const auto first_end = transport::CheckChain(certificates->chain, system_clock::now());
  if (!first_end.ok()) return Naming(kCertificateFlag, files.certificate, first_end.status());
  certificates->not_after = *first_end;
  return Naming(kKeyFlag, files.key, transport::CheckKey(certificates->chain, certificates->key));
}

}  // namespace

absl::StatusOr<std::shared_ptr<CertificateStore>> CertificateStore::Load(TlsFiles files) {
  std::shared_ptr<CertificateStore> store(new CertificateStore(std::move(files)));
  POSENC_ASSIGN_OR_RETURN(Certificates read, ReadFiles(store->files_));
  POSENC_RETURN_IF_ERROR(Check(store->files_, &read));
  store->current_ = std::make_shared<const Certificates>(std::move(read));
  return store;
}

std::shared_ptr<const Certificates> CertificateStore::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void CertificateStore::Reload() {
  const std::shared_ptr<const Certificates> used = current();
  if (!expired_ && used->not_after < system_clock::now()) {
    Log(LogLevel::err, "certificate expired", {{"not_after", transport::UtcOf(used->not_after)}});
    expired_ = true;
  }
  absl::StatusOr<Certificates> read = ReadFiles(files_);
  if (!read.ok()) return Fail(read.status());
  if (read->HasFilesOf(*used)) {
    last_failure_.clear();
    return;
  }
  // The files are replaced one after another. If they still change, wait for the next call.
  const absl::StatusOr<Certificates> again = ReadFiles(files_);
  if (!again.ok()) return Fail(again.status());
  if (!read->HasFilesOf(*again)) return;
  if (const absl::Status status = Check(files_, &*read); !status.ok()) return Fail(status);
  Log(LogLevel::info, "certificate reloaded",
      {{"file", files_.certificate}, {"not_after", transport::UtcOf(read->not_after)}});
  ++reloads_;
  expired_ = false;
  last_failure_.clear();
  auto next = std::make_shared<const Certificates>(*std::move(read));
  const std::lock_guard lock(mutex_);
  current_ = std::move(next);
}

void CertificateStore::Fail(const absl::Status& why) {
  // Without descriptors or memory, nothing is known about the files.
  if (absl::IsUnavailable(why) || why.message() == last_failure_) return;
  last_failure_ = std::string(why.message());
  ++failed_reloads_;
  Log(LogLevel::err, "certificate not reloaded; the old one is kept", {{"error", last_failure_}});
}

}  // namespace posenc::server
