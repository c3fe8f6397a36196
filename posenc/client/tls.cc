#include "posenc/client/tls.h"

#include <fstream>
#include <iterator>

#include "posenc/base/status.h"

namespace posenc {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string pem{std::istreambuf_iterator<char>(file), {}};
  if (!file || pem.empty()) return absl::InvalidArgumentError(path + ": cannot be read, or is empty");
  return pem;
}

}  // namespace

absl::StatusOr<Tls> ReadTlsFiles(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a client's certificate and its key need each other");
  }
  Tls tls;
  POSENC_ASSIGN_OR_RETURN(tls.ca, ReadPem(files.ca));
  POSENC_ASSIGN_OR_RETURN(tls.certificate, ReadPem(files.certificate));
  POSENC_ASSIGN_OR_RETURN(tls.key, ReadPem(files.key));
  return tls;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const std::optional<Tls>& tls,
                                                             grpc::ChannelArguments* arguments) {
  if (!tls) return grpc::InsecureChannelCredentials();
  if (!tls->server_name.empty()) arguments->SetSslTargetNameOverride(tls->server_name);
  return grpc::SslCredentials({tls->ca, tls->key, tls->certificate});
}

}  // namespace posenc
