#include "server/oip/models.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/mapping/read.h"
#include "posenc/service/explain.h"
#include "posenc/wire/model_file.h"
#include "server/core/descriptor.h"
#include "server/core/log.h"
#include "server/core/refusal.h"

namespace posenc::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameBytes = 128;
constexpr std::string_view kOwn = "posenc.";  // beginning of the names of models without a file

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' && !name.starts_with(kOwn) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
         });
}

absl::Status Unreadable(const fs::path& repository, std::error_code error) {
  const bool lacks = IsOutOfDescriptors(error.value());
  return Refusal(lacks ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument,
                 lacks ? "OVERLOADED" : "UNSUPPORTED", "--model-repository", repository.string(),
                 "must be a folder that can be read: " + error.message());
}

// True if the repository is one model.
absl::StatusOr<bool> HasModelFile(const fs::path& repository) {
  std::error_code error;
  if (fs::exists(repository / "config.json", error) || fs::is_directory(repository / "snapshots", error)) return true;
  for (fs::directory_iterator entry(repository, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".gguf") return true;
  }
  if (error) return Unreadable(repository, error);
  return false;
}

// The encodings that a file has, by the suffix of their model's name; the first is also the model without a suffix.
absl::StatusOr<std::vector<const Encoding*>> EncodingsOf(const v1::ModelConfig& file, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(ModelSource source, wire::ReadModelSource(file, ""));
  source.wanted = Wanted::kAny;
  POSENC_RETURN_IF_ERROR(Parse(limits, &source));
  POSENC_ASSIGN_OR_RETURN(std::vector<std::string> components, ComponentsOf(source, limits));
  if (components.empty()) components = {""};
  const Encodings& all = AllEncodings();
  bool rotary = false, bias = false;
  const Encoding* embedding = nullptr;
  absl::Status first;
  for (const std::string& component : components) {
    source.component = component;
    const auto layers = wire::ReadLayers(source, limits);
    if (!layers.ok()) {
      if (first.ok()) first = layers.status();
      continue;
    }
    for (const ModelLayers& layer : *layers) {
      rotary |= layer.rotary.has_value();
      bias |= layer.bias.has_value();
      if (embedding != nullptr) continue;
      embedding = layer.sinusoidal ? &all.sinusoidal : layer.grid ? &all.grid : layer.table ? &all.learned : nullptr;
    }
  }
  std::vector<const Encoding*> found;
  if (rotary) found.insert(found.end(), {&all.rotary, &all.table});
  if (bias) found.insert(found.end(), {&all.bias, &all.add_bias});
  if (embedding != nullptr) found.push_back(embedding);
  if (!found.empty()) return found;
  if (!first.ok()) return first;
  return InvalidArgument("UNSUPPORTED", "config_json", "", "must have an encoding that needs no weights of the model");
}

}  // namespace

void ModelCounters::Count(bool ok, std::chrono::nanoseconds queued, std::chrono::nanoseconds computed) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  last_ms = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  const auto waited = static_cast<uint64_t>(queued.count()), worked = static_cast<uint64_t>(computed.count());
  if (!ok) {
    ++failed;
    failed_ns += waited + worked;
    return;
  }
  queued_ns += waited;
  computed_ns += worked;
  ++succeeded;
}

Models::Models(Options options) : options_(std::move(options)) {
  const Encodings& all = AllEncodings();
  for (const Encoding* encoding : {&all.rotary, &all.table, &all.bias, &all.add_bias, &all.embedding}) {
    const std::string name = std::string(kOwn) + encoding->name;
    own_[name] = Make(name, encoding, nullptr, "");
  }
}

absl::StatusOr<std::unique_ptr<Models>> Models::Open(Options options) {
  std::unique_ptr<Models> models(new Models(std::move(options)));
  const absl::Status status = models->Reload();
  if (models->All()->empty()) return status;  // not even the repository could be read
  return models;
}

absl::StatusOr<Models::Paths> Models::List() const {
  Paths paths;
  if (options_.repository.empty()) return paths;
  const fs::path root = options_.repository;
  POSENC_ASSIGN_OR_RETURN(const bool is_model, HasModelFile(root));
  if (is_model) {
    const std::string folder = fs::absolute(root).lexically_normal().filename().string();
    const std::string& name = options_.name.empty() ? folder : options_.name;
    if (!IsName(name)) {
      return InvalidArgument("OUT_OF_RANGE", "--model-name", name,
                             "must be 1 .. 128 letters, digits, '-', '_' or '.', without posenc. at the beginning");
    }
    paths[name] = root.string();
    return paths;
  }
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    InterruptionPoint();
    std::error_code unknown;
    if (!entry->is_directory(unknown)) continue;
    const std::string name = entry->path().filename().string();
    if (IsName(name)) {
      paths[name] = entry->path().string();
    } else if (name[0] != '.') {
      LogCall(LogLevel::warn,
              "not a model: a name has 1 .. 128 letters, digits, '-', '_' or '.', and not posenc. first",
              {{"folder", Quote(name)}});
    }
  }
  if (error) return Unreadable(root, error);
  return paths;
}

// Looks at no other folder, whose file system may hang.
absl::StatusOr<std::string> Models::PathOf(const std::string& name) const {
  const fs::path root = options_.repository;
  if (options_.repository.empty() || !IsName(name)) return "";
  POSENC_ASSIGN_OR_RETURN(const bool is_model, HasModelFile(root));
  if (is_model) {
    POSENC_ASSIGN_OR_RETURN(const Paths paths, List());
    return paths.contains(name) ? root.string() : "";
  }
  std::error_code unknown;
  return fs::is_directory(root / name, unknown) ? (root / name).string() : "";
}

absl::StatusOr<Models::Table> Models::Read(const std::string& name, const std::string& path) {
  POSENC_ASSIGN_OR_RETURN(v1::ModelConfig file, ReadModelFile(path));
  POSENC_ASSIGN_OR_RETURN(const std::vector<const Encoding*> encodings, EncodingsOf(file, options_.limits));
  const auto shared = std::make_shared<const v1::ModelConfig>(std::move(file));
  Table models = {{name, Make(name, encodings.front(), shared, "")}};
  for (const Encoding* encoding : encodings) {
    const std::string as = name + "." + encoding->name;
    models[as] = Make(as, encoding, shared, "");
  }
  return models;
}

std::shared_ptr<const Model> Models::Make(const std::string& name, const Encoding* encoding,
                                          std::shared_ptr<const v1::ModelConfig> file, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ModelCounters>& counters = counters_[name];
  if (counters == nullptr) counters = std::make_shared<ModelCounters>();
  return std::make_shared<const Model>(Model{name, reason, encoding, std::move(file), counters});
}

bool Models::Replace(uint64_t began, const std::string& name, const std::string& path, absl::StatusOr<Table> models) {
  Folder& folder = folders_[name];
  if (folder.began > began) return false;
  if (models.ok()) {
    folder = {began, path, *std::move(models)};
    return false;
  }
  const std::string why(models.status().message());
  const bool stays = std::ranges::any_of(folder.models, [](const auto& model) { return model.second->ready(); });
  if (!stays) {
    folder = {0, path, {{name, Make(name, nullptr, nullptr, why)}}};
    return false;
  }
  for (auto& [as, model] : folder.models) {
    if (model->ready()) model = Make(as, model->encoding, model->file, "serves its earlier file: " + why);
  }
  return true;
}

absl::Status Models::Reload() {
  const uint64_t began = ++changes_;
  POSENC_ASSIGN_OR_RETURN(Paths paths, List());
  {
    const std::lock_guard changing(changing_);
    for (const auto& [name, folder] : folders_) paths.try_emplace(name, folder.path);
  }
  std::map<std::string, absl::StatusOr<Table>> read;
  for (const auto& [name, path] : paths) {
    InterruptionPoint();
    std::error_code unknown;
    // A folder that is there no more has been removed on purpose. One that cannot be looked at, or has lost its file,
    // has not.
    const bool gone = fs::status(path, unknown).type() == fs::file_type::not_found;
    read.emplace(name, gone ? absl::StatusOr<Table>(Table()) : Read(name, path));
  }
  absl::Status kept;
  const std::lock_guard changing(changing_);
  for (auto& [name, models] : read) {
    const absl::Status why = models.status();
    if (absl::IsNotFound(why) && !folders_.contains(name)) continue;  // not a model
    if (!Replace(began, name, paths[name], std::move(models))) continue;
    kept = absl::UnavailableError(absl::StrCat("models that cannot be read now stay as they were, such as ", name, ": ",
                                               std::string(why.message())));
  }
  std::erase_if(folders_,
                [began](const auto& folder) { return folder.second.began == began && folder.second.models.empty(); });
  Publish();
  return kept;
}

absl::Status Models::Load(const std::string& name) {
  const std::string trimmed(absl::StripAsciiWhitespace(name));
  if (trimmed.empty() || trimmed == ".." || name.find('/') != std::string::npos) {
    return InvalidArgument("OUT_OF_RANGE", "model_name", absl::StrCat("'", name, "'"),
                           "must be the name of a folder in the repository");
  }
  // Triton's code for a model that is not in its repository.
  const auto missing =
      Refusal(absl::StatusCode::kInternal, "NOT_FOUND", "model_name", name, "must be a model of the repository");
  const uint64_t began = ++changes_;
  POSENC_ASSIGN_OR_RETURN(const std::string path, PathOf(name));
  if (path.empty()) return missing;
  auto models = Read(name, path);
  const absl::Status why = models.status();
  InterruptionPoint();  // a call that has ended changes nothing
  bool stays = false;
  {
    const std::lock_guard changing(changing_);
    if (absl::IsNotFound(why) && !folders_.contains(name)) return missing;
    stays = Replace(began, name, path, std::move(models));
    Publish();
  }
  if (why.ok()) return absl::OkStatus();
  const std::string limit = absl::StrCat("must be a model that can be read", stays ? ", and stays as it was: " : ": ",
                                         std::string(why.message()));
  if (absl::IsUnavailable(why)) {
    return Refusal(absl::StatusCode::kUnavailable, "OVERLOADED", "model_name", name, limit);
  }
  if (absl::IsNotFound(why)) return Refusal(absl::StatusCode::kInternal, "NOT_FOUND", "model_name", name, limit);
  return InvalidArgument("UNSUPPORTED", "model_name", name, limit);
}

absl::Status Models::Unload(const std::string& name) {
  const std::lock_guard changing(changing_);
  auto folder = folders_.find(name);
  if (folder == folders_.end()) {
    folder = std::ranges::find_if(folders_, [&name](const auto& of) { return of.second.models.contains(name); });
  }
  if (folder == folders_.end() || name.starts_with(kOwn)) {
    return NotFound("model_name", name, "must be a model of the repository");
  }
  folder->second.began = ++changes_;
  Table& models = folder->second.models;
  if (folder->first == name) models.clear();
  models[name] = Make(name, nullptr, nullptr, "unloaded");
  Publish();
  return absl::OkStatus();
}

void Models::Publish() {
  Table table;
  // A folder named like another one's encoding, such as "llama.table", comes after "llama" and replaces that.
  for (const auto& [name, folder] : folders_) {
    for (const auto& [as, model] : folder.models) table[as] = model;
  }
  for (const auto& [name, model] : own_) table[name] = model;
  const auto before = All();
  for (const auto& [name, model] : table) {
    if (model->reason.empty()) continue;
    const auto found = before->find(name);
    if (found != before->end() && found->second->reason == model->reason) continue;
    LogCall(LogLevel::warn, model->ready() ? "model stays as it was" : "model is unavailable",
            {{"model", name}, {"reason", Quote(model->reason, 1024)}});
  }
  auto published = std::make_shared<const Table>(std::move(table));
  const std::lock_guard lock(mutex_);
  table_.swap(published);
}

std::shared_ptr<const Model> Models::Find(std::string_view name) const {
  const auto all = All();
  const auto found = all->find(name);
  return found == all->end() ? nullptr : found->second;
}

std::shared_ptr<const Models::Table> Models::All() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

}  // namespace posenc::server
