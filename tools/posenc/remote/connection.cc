#include "tools/posenc/connection.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/client/client.h"

namespace posenc::command {
namespace {

// Flags of an encrypted connection. Any of them asks for one.
class TlsFlags {
 public:
  void Add(CLI::App* app) {
    const char* group = "Encryption";
    app->add_flag("--tls", on_, "Encrypt the connection to the server (TLS)")->envname("POSENC_TLS")->group(group);
    const auto add = [=](const char* flag, std::string& value, const char* help, const char* type, const char* name) {
      app->add_option(flag, value, help)->type_name(type)->envname(name)->group(group);
    };
    add("--tls-ca", files_.ca, "CAs of the server's certificate, in PEM; default: the system's", "FILE",
        "POSENC_TLS_CA");
    add("--tls-cert", files_.certificate, "This client's certificate, in PEM", "FILE", "POSENC_TLS_CERT");
    add("--tls-key", files_.key, "The certificate's key, in PEM", "FILE", "POSENC_TLS_KEY");
    add("--token-file", files_.token, "This client's bearer token, sent over TLS or a Unix socket", "FILE",
        "POSENC_TOKEN_FILE");
    add("--tls-server-name", server_name_, "Name in the server's certificate; default: that of --server", "NAME",
        "POSENC_TLS_SERVER_NAME");
  }
  absl::Status Get(std::optional<Tls>* tls) const {
    if (!on_ && files_.ca.empty() && files_.certificate.empty() && files_.key.empty() && files_.token.empty() &&
        server_name_.empty()) {
      return absl::OkStatus();
    }
    POSENC_ASSIGN_OR_RETURN(*tls, ReadTlsFiles(files_));
    (*tls)->server_name = server_name_;
    return absl::OkStatus();
  }

 private:
  bool on_ = false;
  TlsFiles files_;
  std::string server_name_;
};

}  // namespace

std::function<absl::Status()> AddConnectionFlags(CLI::App& app, GlobalFlags& flags) {
  app.add_option("--server", flags.server,
                 "Address of a posenc-server, such as localhost:50051 or unix:PATH; default: compute in this process")
      ->type_name("ADDRESS")
      ->envname("POSENC_SERVER");
  auto tls = std::make_shared<TlsFlags>();
  tls->Add(&app);
  return [tls, &flags] { return tls->Get(&flags.tls); };
}

std::unique_ptr<Backend> Connect(const GlobalFlags& flags) {
  if (flags.server.empty()) return ComputeHere(flags.timeout_seconds);
  ClientOptions options;
  options.address = flags.server;
  options.tls = flags.tls;
  if (flags.timeout_seconds > 0) options.timeout = SecondsOf(flags.timeout_seconds);
  return std::make_unique<Client>(std::move(options));
}

}  // namespace posenc::command
