// The text of a config.json as a checked tree, and typed access to its fields.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"

namespace posenc {

// INVALID_ARGUMENT (field "config_json") unless the text is one JSON object: UTF-8, within the size limit, nested at
// most 64 deep, without duplicate keys, and with numbers that a float64 can hold.
absl::StatusOr<nlohmann::json> ParseConfigJson(std::string_view text, const Limits& limits);

// Reads fields of one object by name. null counts as absent; a value of another type is INVALID_ARGUMENT naming the
// path.
class ConfigObject {
 public:
  // `path` is how messages call the object: "" or "text_config", "rope_scaling", ...; `json` must outlive this.
  ConfigObject(std::string path, const nlohmann::json& json) : path_(std::move(path)), tree_(json) {}

  const nlohmann::json& tree() const { return tree_; }
  std::string Path(std::string_view name) const;
  // The field, or null if it is absent or JSON's null, or the name is "".
  const nlohmann::json* Find(std::string_view name) const;

  // The first of the names that is there.
  absl::StatusOr<std::optional<double>> Number(std::initializer_list<std::string_view> names) const;
  absl::StatusOr<std::optional<int64_t>> Integer(std::initializer_list<std::string_view> names) const;
  // A whole number of at least 1; one below it, as -1, stands for none.
  absl::StatusOr<std::optional<int64_t>> Length(std::string_view name) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view name) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view name) const;
  absl::StatusOr<std::optional<std::vector<double>>> Numbers(std::string_view name) const;
  absl::StatusOr<std::optional<std::vector<std::string>>> Strings(std::string_view name) const;
  absl::StatusOr<std::optional<ConfigObject>> Object(std::string_view name) const;

 private:
  std::string path_;
  const nlohmann::json& tree_;
};

}  // namespace posenc
