#include "posenc/model/config_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "posenc/status.h"

namespace posenc {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

absl::Status Malformed(std::string_view value, std::string_view limit) {
  return InvalidArgument("MALFORMED", "config_json", value, limit);
}

// Thrown out of the parser's callback, caught in ParseConfigJson: the library offers no other way to stop it.
struct Refused {
  absl::Status status;
};

absl::Status WrongType(const std::string& path, const json& value, std::string_view expected) {
  return InvalidArgument("OUT_OF_RANGE", path, value.dump(-1, ' ', true, json::error_handler_t::replace),
                         fmt::format("must be {}", expected));
}

}  // namespace

absl::StatusOr<json> ParseConfigJson(std::string_view text, const Limits& limits) {
  if (text.empty()) return InvalidArgument("MISSING", "config_json", "", "must hold the text of a config.json");
  if (static_cast<int64_t>(text.size()) > limits.max_config_json_bytes) {
    return InvalidArgument("OUT_OF_RANGE", "config_json", fmt::format("{} bytes", text.size()),
                           fmt::format("must be at most {} bytes", limits.max_config_json_bytes));
  }
  // The parser takes it for the end of the text, and would not look at what follows.
  if (text.find('\0') != std::string_view::npos) return Malformed("a NUL byte", "must be valid JSON");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&keys](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) throw Refused{Malformed("nested too deep", fmt::format("at most {} levels", kMaxDepth))};
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw Refused{Malformed(parsed.get<std::string>(), "must not hold the same key twice")};
    }
    return true;
  };
  try {
    json tree = json::parse(text, check);
    if (!tree.is_object()) return Malformed(tree.type_name(), "must be a JSON object");
    return tree;
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const json::exception& error) {
    return Malformed("not valid JSON", fmt::format("the parser says: {}", Quote(error.what(), 200)));
  }
}

std::string ConfigObject::Path(std::string_view name) const {
  return path_.empty() ? Quote(name) : fmt::format("{}.{}", path_, Quote(name));
}

const json* ConfigObject::Find(std::string_view name) const {
  const auto found = tree_.find(name);
  return found == tree_.end() || found->is_null() ? nullptr : &*found;
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
