#include "posenc/wire/model_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "posenc/base/gguf.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 16 << 20;  // the service has a lower limit and reports it
constexpr size_t kMostListed = 10;         // names of files in an error
constexpr size_t kLongestMessage = 8192;   // bytes; a path has at most 4096

absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  const ErrorDetails details = DetailsOf(status);
  return details.field.empty() ? absl::Status(status.code(), message) : Restore(status.code(), message, details);
}

// Begins the status's message with the name of the file.
absl::Status In(const std::string& name, const absl::Status& status) {
  return WithMessage(status, absl::StrCat(name, ": ", status.message()));
}

absl::Status Wrong(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

// True for a lack of descriptors or memory, which says nothing about the file.
bool IsLack(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

absl::Status Unreadable(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::generic_category().message(error));
  return IsLack(error) ? absl::UnavailableError(message) : absl::PermissionDeniedError(message);
}

absl::StatusOr<std::string> ReadStream(std::istream& stream, const std::string& name) {
  std::string bytes(kMostBytes + 1, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(stream.gcount()));
  if (bytes.empty()) return Wrong(name, "is empty; it can be read only once");
  if (bytes.size() <= kMostBytes) return bytes;
  return Wrong(name, absl::StrCat("has more than ", kMostBytes, " bytes; give a model's file by its path"));
}

absl::StatusOr<v1::ModelConfig> ModelOf(std::string bytes, const std::string& name) {
  v1::ModelConfig model;
  if (!bytes.starts_with(kGgufMagic)) {
    model.set_config_json(std::move(bytes));
    return model;
  }
  const absl::StatusOr<Gguf> gguf = ReadGguf(bytes);
  if (!gguf.ok()) return In(name, gguf.status());
  model.set_gguf(WriteGguf(*gguf));
  return model;
}

absl::StatusOr<v1::ModelConfig> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Unreadable(path, "cannot open", errno);
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) {  // a pipe
    POSENC_ASSIGN_OR_RETURN(std::string bytes, ReadStream(file, path));
    return ModelOf(std::move(bytes), path);
  }
  const GgufSource source{fs::file_size(path, unknown),
                          [&](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
                            std::string bytes(count, '\0');
                            file.clear();
                            file.seekg(static_cast<std::streamoff>(offset));
                            file.read(bytes.data(), static_cast<std::streamsize>(count));
                            if (static_cast<uint64_t>(file.gcount()) == count) return bytes;
                            return absl::UnavailableError("cannot read, or was truncated while it was read");
                          }};
  const auto start = source.read(0, std::min<uint64_t>(source.size, kGgufMagic.size()));
  if (!start.ok()) return In(path, start.status());
  v1::ModelConfig model;
  if (*start == kGgufMagic || fs::path(path).extension() == ".gguf") {
    const absl::StatusOr<Gguf> gguf = ReadGguf(source);
    if (!gguf.ok()) return In(path, gguf.status());
    model.set_gguf(WriteGguf(*gguf));
    return model;
  }
  if (source.size > kMostBytes) {
    return Wrong(path, absl::StrCat("has ", source.size, " bytes; a config.json has at most ", kMostBytes));
  }
  auto text = source.read(0, source.size);
  if (!text.ok()) return In(path, text.status());
  model.set_config_json(*std::move(text));
  return model;
}

// Returns the names of a folder's entries that are config.json or end in .gguf, or all folders in it; sorted.
absl::StatusOr<std::vector<std::string>> Names(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const fs::path name = entry->path().filename();
    const bool fits = folders ? entry->is_directory(unknown) : name == "config.json" || name.extension() == ".gguf";
    if (fits) names.push_back(name.string());
  }
  if (error) return Unreadable(folder.string(), "cannot read", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

std::string List(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostListed);
  std::string list = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (shown < names.size()) absl::StrAppend(&list, " and ", names.size() - shown, " others");
  return list;
}

// Returns the snapshot that refs/main selects in a folder of the Hugging Face cache, or the only one.
absl::StatusOr<fs::path> SnapshotOf(const fs::path& folder) {
  const fs::path snapshots = folder / "snapshots";
  POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(snapshots, /*folders=*/true));
  std::string main;
  std::ifstream file(folder / "refs" / "main");
  if (!file && IsLack(errno)) return Unreadable((folder / "refs" / "main").string(), "cannot open", errno);
  file >> main;
  if (std::find(names.begin(), names.end(), main) != names.end()) return snapshots / main;
  if (names.size() == 1 && main.empty()) return snapshots / names[0];
  if (names.empty()) return Wrong(folder.string(), "has no snapshots: the download did not complete");
  return Wrong(folder.string(), absl::StrCat("refs/main ", main.empty() ? "is absent" : "selects no snapshot",
                                             "; give one of the folders in snapshots: ", List(names)));
}

absl::StatusOr<v1::ModelConfig> ReadFolder(fs::path folder) {
  std::error_code unknown;
  if (fs::is_directory(folder / "snapshots", unknown) && !fs::exists(folder / "config.json", unknown)) {
    POSENC_ASSIGN_OR_RETURN(folder, SnapshotOf(folder));
  }
  POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(folder, /*folders=*/false));
  if (names.size() == 1) {
    const fs::path file = folder / names[0];
    if (!fs::is_regular_file(file, unknown)) return Wrong(file.string(), "is not a file");
    return ReadFile(file);
  }
  if (!names.empty()) {
    return Wrong(folder.string(), absl::StrCat("has several model files; give one of them: ", List(names)));
  }
  POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> folders, Names(folder, /*folders=*/true));
  std::vector<std::string> with_models;
  for (const std::string& inner : folders) {
    if (fs::exists(folder / inner / "config.json", unknown)) with_models.push_back(inner);
  }
  return absl::NotFoundError(
      absl::StrCat(folder.string(), ": has no config.json and no .gguf file",
                   with_models.empty() ? "" : absl::StrCat("; give one of the folders in it: ", List(with_models))));
}

// True for ORGANISATION/NAME, as the Hugging Face Hub calls models.
bool IsHubName(const std::string& path) {
  const size_t slash = path.find('/');
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part[0] != '.' && part[0] != '~' &&
           std::all_of(part.begin(), part.end(),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
  };
  if (slash == std::string::npos || path.ends_with(".json") || path.ends_with(".gguf")) return false;
  return is_part(std::string_view(path).substr(0, slash)) && is_part(std::string_view(path).substr(slash + 1));
}

// Returns the folder in which huggingface_hub keeps a model.
std::string CacheFolder(const std::string& name) {
  const auto variable = [](const char* it) {
    const char* value = std::getenv(it);
    return std::string(value == nullptr ? "" : value);
  };
  std::string hub = variable("HF_HUB_CACHE");
  if (hub.empty() && !variable("HF_HOME").empty()) hub = variable("HF_HOME") + "/hub";
  if (hub.empty()) hub = variable("HOME") + "/.cache/huggingface/hub";
  return absl::StrCat(hub, "/models--", absl::StrReplaceAll(name, {{"/", "--"}}));
}

absl::Status NoSuchFile(const std::string& path) {
  if (!IsHubName(path)) return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  const std::string cache = CacheFolder(path);
  std::error_code unknown;
  return absl::NotFoundError(absl::StrCat(
      path, ": no such file or folder, and nothing is fetched by a model's name; ",
      fs::is_directory(cache, unknown)
          ? absl::StrCat("give ", cache)
          : absl::StrCat("download a snapshot and give its folder, e.g. in the Hugging Face cache: ", cache)));
}

absl::StatusOr<v1::ModelConfig> ReadFileOrFolder(const std::string& path) {
  if (path == "-") {
    const std::string name = "standard input";
    POSENC_ASSIGN_OR_RETURN(std::string bytes, ReadStream(std::cin, name));
    return ModelOf(std::move(bytes), name);
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (IsLack(error.value())) return Unreadable(path, "cannot open", error.value());
  if (fs::is_directory(status)) return ReadFolder(path);
  if (!fs::exists(status)) return NoSuchFile(path);
  return ReadFile(path);
}

}  // namespace

absl::StatusOr<v1::ModelConfig> ReadModelFile(const std::string& path) {
  auto model = ReadFileOrFolder(path);
  if (model.ok()) return model;
  // Names of files, which the message has, need not be UTF-8.
  return WithMessage(model.status(), Quote(std::string(model.status().message()), kLongestMessage));
}

}  // namespace posenc
