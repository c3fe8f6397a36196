#include "posenc/model/config_json.h"

#include <fmt/format.h>

#include <vector>

#include "posenc/base/json_text.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

using nlohmann::json;

// Small blocks are refused at the next interruption point. The exceptions pass through the parser as its own do.
absl::Status BuildTree(std::string_view text, json* tree) {
  const LargeBlocksMayBeRefused scope;
  return ParseJson(text, kConfigJson, tree);
}

void FreeInPlace(json& value) {
  if (!value.is_structured()) return;
  for (json& inner : value) FreeInPlace(inner);
  value.clear();
}

absl::Status WrongType(const std::string& path, const json& value, std::string_view expected) {
  return InvalidArgument("OUT_OF_RANGE", path, AsText(value), fmt::format("must be {}", expected));
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): iterators of structured values do not throw
ParsedConfig::~ParsedConfig() { FreeInPlace(tree); }

std::string AsText(const json& value) {
  const LargeBlocksMayBeRefused scope;
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

absl::StatusOr<std::shared_ptr<const ParsedConfig>> ParseConfigJson(std::string_view text, const Limits& limits) {
  if (text.empty()) {
    return InvalidArgument("MISSING", kConfigJson, "",
                           "must be given: the file's bytes, or its text in config_json_text");
  }
  if (static_cast<int64_t>(text.size()) > limits.max_config_json_bytes) {
    return InvalidArgument("OUT_OF_RANGE", kConfigJson, fmt::format("{} bytes", text.size()),
                           fmt::format("must be at most {} bytes", limits.max_config_json_bytes));
  }
  auto parsed = std::make_shared<ParsedConfig>();
  POSENC_RETURN_IF_ERROR(BuildTree(text, &parsed->tree));
  if (!parsed->tree.is_object()) {
    return InvalidArgument("MALFORMED", kConfigJson, parsed->tree.type_name(), "must be a JSON object");
  }
  return parsed;
}

std::string ConfigObject::Path(std::string_view name) const { return fmt::format("{}.{}", path_, Quote(name)); }

std::string ConfigObject::PathOf(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    if (Has(name)) return Path(name);
  }
  for (std::string_view name : names) {
    if (!name.empty()) return Path(name);
  }
  return path_;
}

const json* ConfigObject::Find(std::string_view name) const {
  if (!read_->contains(name)) read_->emplace(name);
  return FindUnread(name);
}

const json* ConfigObject::FindUnread(std::string_view name) const {
  if (name.empty()) return nullptr;  // the model type has no such field
  const auto found = tree_->find(name);
  return found == tree_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigObject::IsNull(std::string_view name) const {
  const auto found = tree_->find(name);
  return found != tree_->end() && found->is_null();
}

absl::StatusOr<std::optional<double>> ConfigObject::Number(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    const json* value = Find(name);
    if (value == nullptr) continue;
    if (!value->is_number()) return WrongType(Path(name), *value, "a number");
    return value->get<double>();
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<int64_t>> ConfigObject::Integer(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    const json* value = Find(name);
    if (value == nullptr) continue;
    constexpr int64_t kLargest = int64_t{1} << 40;
    if (!value->is_number_integer() || *value < 0 || *value > kLargest) {
      return WrongType(Path(name), *value, "a whole number, 0 .. 2^40");
    }
    return value->get<int64_t>();
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<int64_t>> ConfigObject::Length(std::string_view name) const {
  const json* value = Find(name);
  const bool below_one = value != nullptr && value->is_number_integer() &&
                         (value->is_number_unsigned() ? value->get<uint64_t>() == 0 : value->get<int64_t>() < 1);
  if (below_one) return std::nullopt;
  return Integer({name});
}

absl::StatusOr<std::optional<bool>> ConfigObject::Bool(std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return WrongType(Path(name), *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::optional<std::string>> ConfigObject::String(std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return WrongType(Path(name), *value, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::optional<std::vector<double>>> ConfigObject::Numbers(std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return WrongType(Path(name), *value, "a list of numbers");
  const LargeBlocksMayBeRefused scope;
  std::vector<double> numbers;
  for (const json& item : *value) {
    if (!item.is_number()) {
      return WrongType(fmt::format("{}[{}]", Path(name), numbers.size()), item, "a number");
    }
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

absl::StatusOr<std::optional<std::vector<std::string>>> ConfigObject::Strings(std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return WrongType(Path(name), *value, "a list of strings");
  const LargeBlocksMayBeRefused scope;
  std::vector<std::string> strings;
  for (const json& item : *value) {
    if (!item.is_string()) return WrongType(fmt::format("{}[{}]", Path(name), strings.size()), item, "a string");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

absl::StatusOr<std::optional<ConfigObject>> ConfigObject::Object(std::string_view name) const {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return WrongType(Path(name), *value, "an object");
  return std::optional<ConfigObject>(std::in_place, Path(name), *value);
}

}  // namespace posenc
