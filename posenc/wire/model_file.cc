#include "posenc/wire/model_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "posenc/base/gguf.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/wire/onnx_file.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 16 << 20;  // the service has a lower limit and reports it
constexpr uint64_t kMostReferenceBytes = 4096;
constexpr size_t kMostListed = 10;        // names of files in an error
constexpr size_t kLongestMessage = 8192;  // bytes; a path has at most 4096

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

// Errors do not name the file.
absl::StatusOr<v1::ModelConfig> ReadModel(const std::string& path, Streams streams) {
  POSENC_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, kMostBytes, streams));
  const auto read = [&file](uint64_t offset, uint64_t count) { return file.Read(offset, count); };
  POSENC_ASSIGN_OR_RETURN(const std::string start, file.Read(0, std::min<uint64_t>(file.size(), kGgufMagic.size())));
  v1::ModelConfig model;
  if (start == kGgufMagic || fs::path(path).extension() == ".gguf") {
    POSENC_ASSIGN_OR_RETURN(const Gguf gguf, ReadGguf(GgufSource{file.size(), read}));
    model.set_gguf(WriteGguf(gguf));
    return model;
  }
  if (IsOnnxPath(path)) {
    return absl::InvalidArgumentError(
        "is an ONNX graph, whose tables are no settings of a model: posenc explain, compare and what rotates read it");
  }
  if (file.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", file.size(), " bytes; a config.json has at most ", kMostBytes));
  }
  POSENC_ASSIGN_OR_RETURN(*model.mutable_config_json(), file.Read(0, file.size()));
  return model;
}

absl::StatusOr<v1::ModelConfig> ReadNamed(const std::string& path, Streams streams) {
  auto model = ReadModel(path, streams);
  if (model.ok()) return model;
  return In(path == "-" && streams == Streams::kRead ? "standard input" : path, model.status());
}

// Returns the names of a folder's entries that are config.json or end in .gguf, or all folders in it; sorted.
absl::StatusOr<std::vector<std::string>> Names(const fs::path& folder, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    InterruptionPoint();
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
  const std::string file = folder / "refs" / "main";
  absl::StatusOr<std::string> reference = ReadFile(file, kMostReferenceBytes);
  if (!reference.ok() && !absl::IsNotFound(reference.status())) return In(file, reference.status());
  const std::string main(absl::StripAsciiWhitespace(reference.ok() ? *reference : ""));
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
    return ReadNamed(folder / names[0], Streams::kRefused);
  }
  if (!names.empty()) {
    return Wrong(folder.string(), absl::StrCat("has several model files; give one of them: ", List(names)));
  }
  const fs::path consolidated = folder / "params.json";  // of Mistral's own format
  if (fs::exists(consolidated, unknown)) return ReadNamed(consolidated, Streams::kRefused);
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

absl::StatusOr<v1::ModelConfig> ReadFileOrFolder(const std::string& path, Streams streams) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return ReadFolder(path);
  auto model = ReadNamed(path, streams);
  return absl::IsNotFound(model.status()) ? NoSuchFile(path) : std::move(model);
}

}  // namespace

absl::StatusOr<v1::ModelConfig> ReadModelFile(const std::string& path, Streams streams) {
  auto model = ReadFileOrFolder(path, streams);
  if (model.ok()) return model;
  // Names of files, which the message has, need not be UTF-8.
  return WithMessage(model.status(), Quote(std::string(model.status().message()), kLongestMessage));
}

}  // namespace posenc
