#include "server/oip/models.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/mapping/read.h"
#include "posenc/service/explain.h"
#include "posenc/wire/model_file.h"
#include "server/core/log.h"
#include "server/core/refusal.h"

namespace posenc::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNameBytes = 128;
constexpr std::string_view kOwn = "posenc.";  // beginning of the names of models without a file

absl::Status NoSuchModel(std::string_view name) {
  return NotFound("model_name", name, "must be a model of the repository");
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' && !name.starts_with(kOwn) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
         });
}

bool HasModelFile(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder / "config.json", unknown) || fs::is_directory(folder / "snapshots", unknown)) return true;
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end; entry.increment(unknown)) {
    if (entry->path().extension() == ".gguf") return true;
  }
  return false;
}

// The encodings that a file has, by the suffix of their model's name; the first is also the model without a suffix.
absl::StatusOr<std::vector<const Encoding*>> EncodingsOf(const v1::ModelConfig& file, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(ModelSource source, wire::ReadModelSource(file, ""));
  source.wanted = Wanted::kAny;
  POSENC_ASSIGN_OR_RETURN(std::vector<std::string> components, ComponentsOf(source, limits));
  if (components.empty()) components = {""};
  const Encodings& all = AllEncodings();
  bool rotary = false, bias = false;
  const Encoding* embedding = nullptr;
  absl::Status first;
  for (const std::string& component : components) {
    const auto layers = wire::ReadLayers(file, component, limits);
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

absl::StatusOr<std::unique_ptr<Models>> Models::Open(Options options) {
  std::unique_ptr<Models> models(new Models(std::move(options)));
  POSENC_RETURN_IF_ERROR(models->Reload());
  return models;
}

absl::StatusOr<Models::Folders> Models::List() const {
  Folders folders;
  if (options_.repository.empty()) return folders;
  const fs::path root = options_.repository;
  std::error_code error;
  if (HasModelFile(root)) {
    const std::string name = fs::absolute(root).lexically_normal().filename().string();
    folders[options_.name.empty() ? name : options_.name] = root.string();
    if (IsName(folders.begin()->first)) return folders;
    return InvalidArgument("OUT_OF_RANGE", "--model-name", folders.begin()->first,
                           "must be 1 .. 128 letters, digits, '-', '_' or '.', without posenc. at the beginning");
  }
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (!entry->is_directory(unknown)) continue;
    const std::string name = entry->path().filename().string();
    if (IsName(name)) {
      folders[name] = entry->path().string();
    } else if (name[0] != '.') {
      LogCall(LogLevel::warn,
              "not a model: a name has 1 .. 128 letters, digits, '-', '_' or '.', and not posenc. first",
              {{"folder", Quote(name)}});
    }
  }
  if (error) {
    return InvalidArgument("UNSUPPORTED", "--model-repository", options_.repository,
                           "must be a folder that can be read: " + error.message());
  }
  return folders;
}

bool Models::Add(const std::string& name, const std::string& path, Table* table) {
  auto file = ReadModelFile(path);
  if (absl::IsNotFound(file.status())) return false;
  const auto encodings = file.ok() ? EncodingsOf(*file, options_.limits) : file.status();
  if (!encodings.ok()) {
    AddUnavailable(name, std::string(encodings.status().message()), table);
    return true;
  }
  const auto shared = std::make_shared<const v1::ModelConfig>(*std::move(file));
  const auto make = [&](const std::string& as, const Encoding* encoding) {
    return std::make_shared<const Model>(Model{as, "", encoding, shared, CountersOf(as)});
  };
  // A folder named like another model's encoding, such as "llama.table", comes after "llama" and replaces that.
  (*table)[name] = make(name, encodings->front());
  for (const Encoding* encoding : *encodings) {
    const std::string as = name + "." + encoding->name;
    table->emplace(as, make(as, encoding));
  }
  return true;
}

void Models::AddUnavailable(const std::string& name, const std::string& why, Table* table) {
  const auto before = Find(name);
  if (before == nullptr || before->why_unavailable != why) {
    LogCall(LogLevel::warn, "model is unavailable", {{"model", name}, {"reason", Quote(why, 1024)}});
  }
  (*table)[name] = std::make_shared<const Model>(Model{name, why, nullptr, nullptr, CountersOf(name)});
}

void Models::AddOwn(Table* table) {
  const Encodings& all = AllEncodings();
  for (const Encoding* encoding : {&all.rotary, &all.table, &all.bias, &all.add_bias, &all.embedding}) {
    const std::string name = std::string(kOwn) + encoding->name;
    (*table)[name] = std::make_shared<const Model>(Model{name, "", encoding, nullptr, CountersOf(name)});
  }
}

std::shared_ptr<ModelCounters> Models::CountersOf(const std::string& name) {
  std::shared_ptr<ModelCounters>& counters = counters_[name];
  if (counters == nullptr) counters = std::make_shared<ModelCounters>();
  return counters;
}

absl::Status Models::Reload() {
  const std::lock_guard writing(writing_);
  POSENC_ASSIGN_OR_RETURN(const Folders folders, List());
  Table table;
  for (const auto& [name, path] : folders) Add(name, path, &table);
  AddOwn(&table);
  Publish(std::move(table));
  return absl::OkStatus();
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
  const std::lock_guard writing(writing_);
  POSENC_ASSIGN_OR_RETURN(const Folders folders, List());
  const auto folder = folders.find(name);
  if (folder == folders.end()) return missing;
  Table table = Without(name);
  if (!Add(name, folder->second, &table)) return missing;
  const std::string why = table.at(name)->why_unavailable;
  Publish(std::move(table));
  if (why.empty()) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", "model_name", name, "must be a model that can be read: " + why);
}

absl::Status Models::Unload(const std::string& name) {
  const std::lock_guard writing(writing_);
  const auto model = Find(name);
  if (model == nullptr || name.starts_with(kOwn)) return NoSuchModel(name);
  constexpr char kUnloaded[] = "unloaded";
  if (model->why_unavailable == kUnloaded) return absl::OkStatus();
  Table table = Without(name);
  AddUnavailable(name, kUnloaded, &table);
  Publish(std::move(table));
  return absl::OkStatus();
}

Models::Table Models::Without(const std::string& name) const {
  const auto all = All();
  const auto found = all->find(name);
  const auto file = found == all->end() ? nullptr : found->second->file;
  Table table;
  for (const auto& [other, model] : *all) {
    const bool is_part = file != nullptr && model->file == file && other.starts_with(name + ".");
    if (other != name && !is_part) table.emplace(other, model);
  }
  return table;
}

void Models::Publish(Table table) {
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
