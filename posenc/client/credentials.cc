#include "posenc/client/credentials.h"

#include "absl/strings/match.h"

namespace posenc {

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const std::string& address, const std::optional<Tls>& tls,
                                                             grpc::ChannelArguments* arguments) {
  const bool is_unix = absl::StartsWith(address, "unix:");
  if (!tls || (is_unix && tls->token.empty())) return grpc::InsecureChannelCredentials();
  if (!tls->server_name.empty() && !is_unix) arguments->SetSslTargetNameOverride(tls->server_name);
  // gRPC sends no token over a connection without security; local credentials say that a Unix socket has it.
  const std::shared_ptr<grpc::ChannelCredentials> connection =
      is_unix ? grpc::experimental::LocalCredentials(UDS) : grpc::SslCredentials({tls->ca, tls->key, tls->certificate});
  if (tls->token.empty()) return connection;
  return grpc::CompositeChannelCredentials(connection, grpc::AccessTokenCredentials(tls->token));
}

}  // namespace posenc
