#include "posenc/client/tls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/transport/pem.h"

namespace posenc {
namespace {

absl::Status Naming(const std::string& path, const absl::Status& status) {
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<std::string> Read(const std::string& path) {
  if (path.empty()) return "";
  absl::StatusOr<std::string> pem = transport::ReadPem(path, Streams::kRead);
  if (!pem.ok()) return Naming(path, pem.status());
  return pem;
}

bool IsToken(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

absl::StatusOr<Tls> ReadTlsFiles(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a client's certificate and its key need each other");
  }
  Tls tls;
  POSENC_ASSIGN_OR_RETURN(tls.ca, Read(files.ca));
  POSENC_ASSIGN_OR_RETURN(tls.certificate, Read(files.certificate));
  POSENC_ASSIGN_OR_RETURN(tls.key, Read(files.key));
  if (!files.token.empty()) {
    POSENC_ASSIGN_OR_RETURN(tls.token, Read(files.token));
    tls.token.erase(tls.token.find_last_not_of("\r\n") + 1);
    if (!IsToken(tls.token))
      return absl::InvalidArgumentError(absl::StrCat(files.token, ": must hold one token, in printable ASCII"));
  }
  if (!files.ca.empty()) POSENC_RETURN_IF_ERROR(Naming(files.ca, transport::CheckCertificates(tls.ca)));
  if (files.certificate.empty()) return tls;
  POSENC_RETURN_IF_ERROR(Naming(files.certificate, transport::CheckCertificates(tls.certificate)));
  POSENC_RETURN_IF_ERROR(Naming(files.key, transport::CheckKey(tls.certificate, tls.key)));
  return tls;
}

}  // namespace posenc
