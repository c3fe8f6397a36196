// The models that the Open Inference Protocol serves: those of a repository, by their files, and posenc's own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/v1/rotary.pb.h"
#include "server/oip/encodings.h"

namespace posenc::server {

// Counters of a model's requests. Thread-safe.
struct ModelCounters {
  void Count(bool ok, std::chrono::nanoseconds queued, std::chrono::nanoseconds computed);

  std::atomic<uint64_t> succeeded{0}, failed{0};
  std::atomic<uint64_t> queued_ns{0}, computed_ns{0};  // of requests that succeeded
  std::atomic<uint64_t> failed_ns{0};
  std::atomic<uint64_t> last_ms{0};  // since 1970; 0: none yet
};

// A model as callers name it. Immutable, but for its counters.
struct Model {
  std::string name;                             // "llama", "llama.table", "posenc.rotary"
  std::string reason;                           // why it is unavailable, or not as its files are now; empty: neither
  const Encoding* encoding = nullptr;           // null: unavailable
  std::shared_ptr<const v1::ModelConfig> file;  // null: the request has the settings
  std::shared_ptr<ModelCounters> counters;

  bool ready() const { return encoding != nullptr; }
};

// Thread-safe.
class Models {
 public:
  using Table = std::map<std::string, std::shared_ptr<const Model>, std::less<>>;
  static constexpr char kVersion[] = "1";

  struct Options {
    std::string repository;  // a folder of models' folders, or of one model; empty: posenc's own models only
    std::string name;        // of a repository that is one model; empty: the folder's
    Limits limits;
  };
  // Reads the repository. INVALID_ARGUMENT naming --model-repository if it is not a folder that can be read; a model
  // whose file is bad is unavailable.
  static absl::StatusOr<std::unique_ptr<Models>> Open(Options options);

  // These three change the models. Calls in progress keep the models that they have. Files are read without a lock, so
  // that a file system that hangs holds up nothing but the thread that reads. If two change a folder's models at a
  // time, the change that began later stays. What becomes unavailable is logged, and what stays as it was.
  //
  // Files that cannot be read end no model that is ready: it stays as it was, as with Triton. Only Unload() ends one,
  // and Reload() if its folder has gone.

  // Reads the repository again. Returns an error that names one model if models stay as they were.
  absl::Status Reload();
  // Reads the model of this name again, which is that of a folder of the repository. INTERNAL if there is none.
  // INVALID_ARGUMENT with the reason if its file cannot be read; UNAVAILABLE if descriptors or memory were lacking.
  absl::Status Load(const std::string& name);
  // Makes the model and its encodings, or one encoding, unavailable until it is read again. NOT_FOUND if there is none.
  absl::Status Unload(const std::string& name);

  // Returns null if there is no model of this name.
  std::shared_ptr<const Model> Find(std::string_view name) const;
  std::shared_ptr<const Table> All() const;

 private:
  // The models of one folder: its own, and its encodings.
  struct Folder {
    uint64_t began = 0;  // number of the change that made them, in the order in which changes begin; 0: none could
    std::string path;
    Table models;
  };
  using Folders = std::map<std::string, Folder>;     // by name
  using Paths = std::map<std::string, std::string>;  // by the same name

  explicit Models(Options options);
  absl::StatusOr<Paths> List() const;
  // Returns the path of the folder of this name; empty if there is none.
  absl::StatusOr<std::string> PathOf(const std::string& name) const;
  // Reads a folder's models. NOT_FOUND if it has none; UNAVAILABLE if descriptors or memory are lacking; else the
  // reason why its file is bad.
  absl::StatusOr<Table> Read(const std::string& name, const std::string& path);
  std::shared_ptr<const Model> Make(const std::string& name, const Encoding* encoding,
                                    std::shared_ptr<const v1::ModelConfig> file, const std::string& reason);
  // Puts the models that a change has read into their folder, unless a later change has made it. Models that could not
  // be read leave those that are ready as they were, with the reason. Returns true if they do. Requires changing_.
  bool Replace(uint64_t began, const std::string& name, const std::string& path, absl::StatusOr<Table> models);
  // Makes the table of all folders' models. Requires changing_.
  void Publish();

  const Options options_;
  Table own_;  // models without a file
  std::atomic<uint64_t> changes_{0};
  std::mutex changing_;                                             // no file is read under it
  Folders folders_;                                                 // guarded by changing_
  mutable std::mutex mutex_;                                        // guards the members below
  std::map<std::string, std::shared_ptr<ModelCounters>> counters_;  // of all models that there were
  std::shared_ptr<const Table> table_ = std::make_shared<const Table>();
};

}  // namespace posenc::server
