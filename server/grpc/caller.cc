#include "server/grpc/caller.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"

namespace posenc::server {
namespace {

constexpr char kAuthorization[] = "authorization";

std::vector<std::string> NamesOf(const grpc::AuthContext& connection) {
  static constexpr std::pair<const char*, const char*> kKinds[] = {{GRPC_PEER_DNS_PROPERTY_NAME, "dns:"},
                                                                   {GRPC_PEER_URI_PROPERTY_NAME, "uri:"},
                                                                   {GRPC_PEER_EMAIL_PROPERTY_NAME, "email:"},
                                                                   {GRPC_PEER_IP_PROPERTY_NAME, "ip:"}};
  std::vector<std::string> names;
  for (const auto& [property, kind] : kKinds) {
    for (const grpc::string_ref& value : connection.FindPropertyValues(property)) {
      names.push_back(kind + std::string(value.data(), value.size()));
    }
  }
  return names;
}

std::string TransportOf(const grpc::AuthContext& connection) {
  const auto values = connection.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return values.empty() ? "" : std::string(values[0].data(), values[0].size());
}

}  // namespace

bool IsOfTrustedProxy(const grpc::ServerContextBase& context) {
  return TransportOf(*context.auth_context()) == "local";
}

bool ComesByProxy(const grpc::ServerContextBase& context) {
  return std::ranges::any_of(context.client_metadata(), [](const auto& header) {
    return IsHeaderOfProxy({header.first.data(), header.first.size()});
  });
}

CallerCredentials CredentialsOf(const Rpc& rpc, std::string_view peer, const grpc::ServerContextBase& context) {
  const auto connection = context.auth_context();
  const std::string transport = TransportOf(*connection);
  if (transport == "local") return ProxiedCredentials(rpc.header(kProxiedCertificate), rpc.header(kAuthorization));
  CallerCredentials shown{.names = {}, .authorization = rpc.header(kAuthorization)};
  const bool encrypted = transport == GRPC_SSL_TRANSPORT_SECURITY_TYPE || transport == GRPC_TLS_TRANSPORT_SECURITY_TYPE;
  shown.is_unix = !encrypted && peer.starts_with("unix");
  shown.is_private = encrypted || shown.is_unix;
  if (encrypted && connection->IsPeerAuthenticated()) {
    shown.names = NamesOf(*connection);
    if (shown.names.empty()) shown.names = {"unnamed"};
  }
  return shown;
}

}  // namespace posenc::server
