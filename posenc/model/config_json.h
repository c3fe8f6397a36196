// Validating parser for config.json, and typed access to its fields.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"

namespace posenc {

// Fields of the file are called config_json.PATH in errors, with PATH as the file spells it.
inline constexpr std::string_view kConfigJson = "config_json";

// The tree of a config.json.
struct ParsedConfig {
  ParsedConfig() = default;  // NOLINT(bugprone-exception-escape): see the destructor
  // Frees the values where they are. nlohmann's destructors would allocate: they move the values of each array into a
  // new block first, which must not fail and takes as much memory as the array.
  ~ParsedConfig();  // NOLINT(bugprone-exception-escape): iterators of structured values do not throw
  ParsedConfig(const ParsedConfig&) = delete;
  ParsedConfig& operator=(const ParsedConfig&) = delete;

  nlohmann::json tree;
};

// Returns INVALID_ARGUMENT unless the text is one JSON object: UTF-8, within the size limit, at most 64 levels deep,
// without duplicate keys, and with numbers that a float64 can hold. Errors name the field at which reading stopped, its
// line and its column.
absl::StatusOr<std::shared_ptr<const ParsedConfig>> ParseConfigJson(std::string_view text, const Limits& limits);

// Returns a value as JSON, for errors.
std::string AsText(const nlohmann::json& value);

// Reads fields of one object by name. Getters return nullopt if the field is absent or null, and INVALID_ARGUMENT that
// names its path if the value has another type.
class ConfigObject {
 public:
  // `path` names the object in error messages: kConfigJson, "config_json.text_config", ... `json` must outlive this.
  ConfigObject(std::string path, const nlohmann::json& json) : path_(std::move(path)), tree_(&json) {}

  const nlohmann::json& tree() const { return *tree_; }
  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const;
  // The path of the first of `names` that is present, or of the first that is not empty if none is.
  std::string PathOf(std::initializer_list<std::string_view> names) const;
  // Returns null if the field is absent or JSON null, or if `name` is empty.
  const nlohmann::json* Find(std::string_view name) const;
  // Like Find(name) != nullptr, but the field does not count as read.
  bool Has(std::string_view name) const { return FindUnread(name) != nullptr; }
  // True for null, which the other functions take as absent.
  bool IsNull(std::string_view name) const;
  // Names that the other functions looked for, in this object and its copies, whether the file has them or not.
  const std::set<std::string, std::less<>>& read() const { return *read_; }

  // Number and Integer read the first of `names` that is present. Integer's range is 0 .. 2^40.
  absl::StatusOr<std::optional<double>> Number(std::initializer_list<std::string_view> names) const;
  absl::StatusOr<std::optional<int64_t>> Integer(std::initializer_list<std::string_view> names) const;
  // Reads an integer of 1 .. 2^40. Returns nullopt for an integer below 1: files write -1 for none.
  absl::StatusOr<std::optional<int64_t>> Length(std::string_view name) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view name) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view name) const;
  absl::StatusOr<std::optional<std::vector<double>>> Numbers(std::string_view name) const;
  absl::StatusOr<std::optional<std::vector<std::string>>> Strings(std::string_view name) const;
  absl::StatusOr<std::optional<ConfigObject>> Object(std::string_view name) const;

 private:
  const nlohmann::json* FindUnread(std::string_view name) const;

  std::string path_;
  const nlohmann::json* tree_;
  std::shared_ptr<std::set<std::string, std::less<>>> read_ = std::make_shared<std::set<std::string, std::less<>>>();
};

}  // namespace posenc
