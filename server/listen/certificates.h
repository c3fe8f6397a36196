// The TLS certificate of the server, its key, and the CAs of its clients: read from files, checked, and read again when
// the files change.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::server {

// Paths of PEM files.
struct TlsFiles {
  std::string certificate;  // the server's certificate first, then its intermediate CAs
  std::string key;          // without a passphrase
  std::vector<std::string> client_cas;
};

// Contents of the files. They belong together: the key is the certificate's.
struct Certificates {
  std::string chain;
  std::string key;
  std::string client_cas;
  std::chrono::system_clock::time_point not_after;  // when the first certificate of the chain expires

  bool HasFilesOf(const Certificates& other) const {
    return chain == other.chain && key == other.key && client_cas == other.client_cas;
  }
};

// The certificates in use. Thread-safe, except that only one thread may call Reload().
class CertificateStore {
 public:
  struct Counters {
    int64_t reloads = 0;         // changed files that were taken
    int64_t failed_reloads = 0;  // changed files that were not
  };

  // Checks that everything parses, that the key is the certificate's, that each certificate of the chain is issued by
  // the next, that none of the chain is expired or not valid yet, and that OpenSSL accepts key and chain. Returns
  // INVALID_ARGUMENT naming flag and file.
  static absl::StatusOr<std::shared_ptr<CertificateStore>> Load(TlsFiles files);

  std::shared_ptr<const Certificates> current() const;
  Counters counters() const { return {reloads_, failed_reloads_}; }

  // Reads the files. If they have changed and are valid, they replace the current certificates; otherwise those stay,
  // and the log says why, once for each change.
  void Reload();

 private:
  explicit CertificateStore(TlsFiles files) : files_(std::move(files)) {}
  void Fail(const absl::Status& why);

  const TlsFiles files_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Certificates> current_;  // guarded by mutex_
  std::string last_failure_;
  bool expired_ = false;  // the current ones, and the log says so
  std::atomic<int64_t> reloads_{0}, failed_reloads_{0};
};

}  // namespace posenc::server
