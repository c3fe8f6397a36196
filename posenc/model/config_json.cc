#include "posenc/model/config_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "posenc/base/status.h"

namespace posenc {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

absl::Status Malformed(std::string_view value, std::string_view limit) {
  return InvalidArgument("MALFORMED", "config_json", value, limit);
}

// Validates the text without building a tree, and stops at the first error. (json::parse with a callback needs one pass
// only, but searches all siblings at the end of every object.)
class JsonCheck : public json::json_sax_t {
 public:
  const absl::Status& status() const { return status_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    return open_.back().insert(key).second || Refuse(Malformed(key, "must not hold the same key twice"));
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return Refuse(Malformed("not valid JSON", fmt::format("parser error: {}", Quote(error.what(), 200))));
  }

 private:
  bool Open() {
    if (open_.size() == kMaxDepth) {
      return Refuse(Malformed("nested too deep", fmt::format("at most {} levels", kMaxDepth)));
    }
    open_.emplace_back();
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Refuse(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  std::vector<std::set<std::string>> open_;  // enclosing objects and arrays, each with its keys so far
  absl::Status status_;
};

absl::Status WrongType(const std::string& path, const json& value, std::string_view expected) {
  return InvalidArgument("OUT_OF_RANGE", path, value.dump(-1, ' ', true, json::error_handler_t::replace),
                         fmt::format("must be {}", expected));
}

}  // namespace

absl::StatusOr<json> ParseConfigJson(std::string_view text, const Limits& limits) {
  if (text.empty())
    return InvalidArgument("MISSING", "config_json", "",
                           "give the config.json's bytes, or its text in config_json_text");
  if (static_cast<int64_t>(text.size()) > limits.max_config_json_bytes) {
    return InvalidArgument("OUT_OF_RANGE", "config_json", fmt::format("{} bytes", text.size()),
                           fmt::format("must be at most {} bytes", limits.max_config_json_bytes));
  }
  // The parser treats NUL as the end of the text and ignores the rest.
  if (text.find('\0') != std::string_view::npos) return Malformed("text with a NUL byte", "must be valid JSON");
  JsonCheck check;
  if (!json::sax_parse(text, &check)) return check.status();
  json tree = json::parse(text);
  if (!tree.is_object()) return Malformed(tree.type_name(), "must be a JSON object");
  return tree;
}

std::string ConfigObject::Path(std::string_view name) const {
  return path_.empty() ? Quote(name) : fmt::format("{}.{}", path_, Quote(name));
}

const json* ConfigObject::Find(std::string_view name) const {
  if (name.empty()) return nullptr;  // the model type has no such field
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
