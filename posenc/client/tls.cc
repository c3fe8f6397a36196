#include "posenc/client/tls.h"

#include "absl/strings/match.h"
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
  absl::StatusOr<std::string> pem = transport::ReadPem(path);
  if (!pem.ok()) return Naming(path, pem.status());
  return pem;
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
  if (!files.ca.empty()) POSENC_RETURN_IF_ERROR(Naming(files.ca, transport::CheckCertificates(tls.ca)));
  if (files.certificate.empty()) return tls;
  POSENC_RETURN_IF_ERROR(Naming(files.certificate, transport::CheckCertificates(tls.certificate)));
  POSENC_RETURN_IF_ERROR(Naming(files.key, transport::CheckKey(tls.certificate, tls.key)));
  return tls;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const std::string& address, const std::optional<Tls>& tls,
                                                             grpc::ChannelArguments* arguments) {
  if (!tls || absl::StartsWith(address, "unix:")) return grpc::InsecureChannelCredentials();
  if (!tls->server_name.empty()) arguments->SetSslTargetNameOverride(tls->server_name);
  return grpc::SslCredentials({tls->ca, tls->key, tls->certificate});
}

}  // namespace posenc
