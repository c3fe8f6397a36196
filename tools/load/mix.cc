#include "tools/load/mix.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "posenc/wire/model_file.h"
#include "tools/files/file_io.h"
#include "tools/files/random.h"

namespace posenc::load {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr uint64_t kMostBytes = uint64_t{64} << 20;
constexpr int64_t kMostOfAnything = int64_t{1} << 40;
constexpr uint64_t kOffsets = 0x6f66667365747300, kVerify = 0x7665726966790000;  // for independent sequences

constexpr std::pair<const char*, Transport> kTransports[] = {
    {"unary", Transport::kUnary}, {"stream", Transport::kStream}, {"shared-memory", Transport::kSharedMemory}};

std::string NameOf(Transport transport) {
  for (const auto& [name, value] : kTransports) {
    if (value == transport) return name;
  }
  return "";
}

absl::Status Wrong(std::string_view field, std::string_view limit) {
  return InvalidArgument("MALFORMED", field, "", limit);
}

// Reads an object's fields, each once; other fields are an error.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  template <typename T>
  absl::Status Take(const char* name, T* out) {
    known_.push_back(name);
    const auto found = object_.find(name);
    if (found == object_.end()) return absl::OkStatus();
    if constexpr (std::is_same_v<T, std::string>) {
      if (!found->is_string()) return Wrong(Path(name), "must be a string");
    } else if constexpr (std::is_unsigned_v<T>) {
      if (!found->is_number_unsigned()) return Wrong(Path(name), "must be a whole number, not negative");
    } else if constexpr (std::is_integral_v<T>) {
      if (!found->is_number_integer()) return Wrong(Path(name), "must be a whole number");
    } else {
      const auto whole = [](const json& value) { return value.is_number_integer(); };
      if (!found->is_array() || !std::all_of(found->begin(), found->end(), whole)) {
        return Wrong(Path(name), "must be a list of whole numbers");
      }
    }
    *out = found->template get<T>();
    return absl::OkStatus();
  }
  const json* Take(const char* name) {
    known_.push_back(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  absl::Status CheckAllTaken() const {
    for (const auto& [name, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
        return Wrong(Path(Quote(name)), absl::StrCat("is not one of ", absl::StrJoin(known_, ", ")));
      }
    }
    return absl::OkStatus();
  }
  std::string Path(std::string_view name) const {
    return where_.empty() ? std::string(name) : where_ + "." + std::string(name);
  }

 private:
  const json& object_;
  const std::string where_;
  std::vector<std::string> known_;
};

absl::StatusOr<Entry> ParseEntry(const json& object, const std::string& where, const std::string& directory) {
  if (!object.is_object()) return Wrong(where, "must be an object");
  Fields fields(object, where);
  Entry entry;
  std::string transport = "unary", model;
  POSENC_RETURN_IF_ERROR(fields.Take("name", &entry.name));
  POSENC_RETURN_IF_ERROR(fields.Take("weight", &entry.weight));
  POSENC_RETURN_IF_ERROR(fields.Take("method", &entry.method));
  POSENC_RETURN_IF_ERROR(fields.Take("transport", &transport));
  POSENC_RETURN_IF_ERROR(fields.Take("dtype", &entry.dtype));
  for (const auto& [name, field] : {std::pair("batch", &entry.batch),
                                    {"tokens", &entry.tokens},
                                    {"heads", &entry.heads},
                                    {"key_heads", &entry.key_heads},
                                    {"head_dim", &entry.head_dim}}) {
    POSENC_RETURN_IF_ERROR(fields.Take(name, field));
  }
  POSENC_RETURN_IF_ERROR(fields.Take("offsets", &entry.offsets));
  POSENC_RETURN_IF_ERROR(fields.Take("model", &model));
  POSENC_RETURN_IF_ERROR(fields.Take("config_json", &entry.config_json));
  std::string gguf;
  POSENC_RETURN_IF_ERROR(fields.Take("gguf", &gguf));
  if (!absl::Base64Unescape(gguf, &entry.gguf)) return Wrong(fields.Path("gguf"), "must be base64");
  if (const json* request = fields.Take("request")) {
    if (!request->is_object()) return Wrong(fields.Path("request"), "must be an object");
    entry.request_json = request->dump();
  }
  POSENC_RETURN_IF_ERROR(fields.CheckAllTaken());
  if (entry.name.empty()) entry.name = entry.method;
  POSENC_ASSIGN_OR_RETURN(entry.transport, ParseTransport(transport));
  if (!model.empty()) {
    if (entry.has_model()) return Wrong(fields.Path("model"), "cannot be combined with config_json or gguf");
    POSENC_RETURN_IF_ERROR(ReadModel(std::filesystem::path(directory) / model, &entry));
  }
  return entry;
}

absl::Status CheckRange(const Entry& entry, const char* field, int64_t value, int64_t least) {
  if (value >= least && value <= kMostOfAnything) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", absl::StrCat(Quote(entry.name), ".", field), absl::StrCat(value),
                         absl::StrCat("must be ", least, " .. ", kMostOfAnything));
}

}  // namespace

absl::StatusOr<Transport> ParseTransport(const std::string& text) {
  for (const auto& [name, value] : kTransports) {
    if (text == name) return value;
  }
  return InvalidArgument("UNKNOWN_VALUE", "transport", text, "must be unary, stream or shared-memory");
}

absl::Status CheckMix(const Mix& mix) {
  if (mix.entries.empty()) return Wrong("calls", "must have at least one");
  for (const Entry& entry : mix.entries) {
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "weight", entry.weight, 1));
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "batch", entry.batch, 1));
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "tokens", entry.tokens, 1));
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "heads", entry.heads, 1));
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "key_heads", entry.key_heads, 0));
    POSENC_RETURN_IF_ERROR(CheckRange(entry, "head_dim", entry.head_dim, 1));
    // Protobuf's parser accepts more than JSON, but a recorded mix must be JSON.
    if (json request; !entry.request_json.empty()) {
      const absl::Status status = ParseJson(entry.request_json, "request", &request);
      if (!status.ok()) {
        return Wrong(absl::StrCat(Quote(entry.name), ".request"),
                     absl::StrCat("is not JSON: ", DetailsOf(status).limit));
      }
    }
    if (entry.offsets.empty()) return Wrong(absl::StrCat(Quote(entry.name), ".offsets"), "must have at least one");
  }
  return absl::OkStatus();
}

absl::StatusOr<Mix> ParseMix(const std::string& text, const std::string& directory) {
  json root;
  POSENC_RETURN_IF_ERROR(ParseJson(text, "mix", &root));
  if (!root.is_object()) return Wrong("mix", "is not a JSON object");
  Fields fields(root, "");
  int64_t version = 0;
  Mix mix;
  POSENC_RETURN_IF_ERROR(fields.Take("version", &version));
  if (version != kVersion) {
    return InvalidArgument("OUT_OF_RANGE", "version", absl::StrCat(version), absl::StrCat("must be ", kVersion));
  }
  POSENC_RETURN_IF_ERROR(fields.Take("seed", &mix.seed));
  const json* calls = fields.Take("calls");
  POSENC_RETURN_IF_ERROR(fields.CheckAllTaken());
  if (calls == nullptr || !calls->is_array()) return Wrong("calls", "must be a list of objects");
  for (size_t i = 0; i < calls->size(); ++i) {
    POSENC_ASSIGN_OR_RETURN(Entry entry, ParseEntry((*calls)[i], absl::StrCat("calls[", i, "]"), directory));
    mix.entries.push_back(std::move(entry));
  }
  POSENC_RETURN_IF_ERROR(CheckMix(mix));
  return mix;
}

absl::StatusOr<Mix> ReadMix(const std::string& path) {
  POSENC_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostBytes));
  absl::StatusOr<Mix> mix = ParseMix(text, std::filesystem::path(path).parent_path());
  return mix.ok() ? std::move(mix) : Within(path, mix.status());
}

absl::Status ReadModel(const std::string& path, Entry* entry) {
  POSENC_ASSIGN_OR_RETURN(v1::ModelConfig model, ReadModelFile(path));
  entry->config_json = std::move(*model.mutable_config_json());
  entry->gguf = std::move(*model.mutable_gguf());
  return absl::OkStatus();
}

std::string MixToJson(const Mix& mix) {
  using Json = nlohmann::ordered_json;
  Json calls = Json::array();
  for (const Entry& entry : mix.entries) {
    Json call = {{"name", entry.name},           {"weight", entry.weight},
                 {"method", entry.method},       {"transport", NameOf(entry.transport)},
                 {"dtype", entry.dtype},         {"batch", entry.batch},
                 {"tokens", entry.tokens},       {"heads", entry.heads},
                 {"key_heads", entry.key_heads}, {"head_dim", entry.head_dim},
                 {"offsets", entry.offsets}};
    if (!entry.config_json.empty()) call["config_json"] = entry.config_json;
    if (!entry.gguf.empty()) call["gguf"] = absl::Base64Escape(entry.gguf);
    if (!entry.request_json.empty()) call["request"] = json::parse(entry.request_json, nullptr, false);
    calls.push_back(std::move(call));
  }
  return Json{{"version", kVersion}, {"seed", mix.seed}, {"calls", std::move(calls)}}.dump(
             2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Chooser::Chooser(const Mix& mix) {
  uint64_t end = 0;
  for (const Entry& entry : mix.entries) {
    ends_.push_back(end += static_cast<uint64_t>(entry.weight));
    offsets_.push_back(entry.offsets.size());
  }
}

Choice Chooser::At(uint64_t step_seed, int64_t number) const {
  const auto n = static_cast<uint64_t>(number);
  const auto below = [n](uint64_t seed, uint64_t limit) {
    return static_cast<uint64_t>(UnitOf(RandomAt(seed, n)) * static_cast<double>(limit));
  };
  Choice choice;
  const uint64_t place = below(~step_seed, ends_.back());
  choice.entry = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
  choice.offset = below(step_seed ^ kOffsets, offsets_[choice.entry]);
  choice.verify = UnitOf(RandomAt(step_seed ^ kVerify, n));
  return choice;
}

}  // namespace posenc::load
