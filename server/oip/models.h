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
  std::string name;  // "llama", "llama.table", "posenc.rotary"
  std::string why_unavailable;
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

  // Reads the repository again. Calls in progress keep the models that they have. Logs what changed its state.
  absl::Status Reload();
  // Reads the model of this name again, which is that of a folder of the repository. NOT_FOUND if there is none;
  // INVALID_ARGUMENT with the reason if it is unavailable.
  absl::Status Load(const std::string& name);
  // Makes the model and its encodings unavailable. NOT_FOUND if there is none.
  absl::Status Unload(const std::string& name);

  // Returns null if there is no model of this name.
  std::shared_ptr<const Model> Find(std::string_view name) const;
  std::shared_ptr<const Table> All() const;

 private:
  using Folders = std::map<std::string, std::string>;  // path by model

  explicit Models(Options options) : options_(std::move(options)) {}
  absl::StatusOr<Folders> List() const;
  // Adds a file's models to the table; returns false if the folder has none.
  bool Add(const std::string& name, const std::string& path, Table* table);
  void AddUnavailable(const std::string& name, const std::string& why, Table* table);
  void AddOwn(Table* table);
  std::shared_ptr<ModelCounters> CountersOf(const std::string& name);
  // The table without a model and its encodings.
  Table Without(const std::string& name) const;
  void Publish(Table table);

  const Options options_;
  std::mutex writing_;                                              // one thread changes the table at a time
  std::map<std::string, std::shared_ptr<ModelCounters>> counters_;  // of all models that there were
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_ = std::make_shared<const Table>();  // guarded by mutex_
};

}  // namespace posenc::server
