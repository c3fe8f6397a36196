#include "server/rest/json_fields.h"

#include <fmt/format.h>

#include "posenc/base/status.h"

namespace posenc::server {

using nlohmann::json;

absl::StatusOr<JsonFields> JsonFields::Of(const json& value, std::string path) {
  if (value.is_object()) return JsonFields(&value.get_ref<const json::object_t&>(), std::move(path));
  return InvalidArgument("MISMATCH", path.empty() ? kWholeRequest : path, value.type_name(), "must be an object");
}

const json* JsonFields::Find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->second.is_null() ? nullptr : &found->second;
}

absl::StatusOr<std::string> JsonFields::Text(std::string_view name) {
  const json* value = Find(name);
  if (value == nullptr) return "";
  if (!value->is_string()) return Mismatch(name, "text");
  return value->get<std::string>();
}

absl::StatusOr<bool> JsonFields::Flag(std::string_view name) {
  const json* value = Find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return Mismatch(name, "true or false");
  return value->get<bool>();
}

absl::StatusOr<uint64_t> JsonFields::Unsigned(std::string_view name) {
  const json* value = Find(name);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned()) return Mismatch(name, "an integer, at least 0");
  return value->get<uint64_t>();
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Integers(std::string_view name) {
  const json* value = Find(name);
  std::vector<int64_t> integers;
  if (value == nullptr) return integers;
  if (!value->is_array()) return Mismatch(name, "an array of integers");
  for (const json& one : *value) {
    if (!IsInteger(one)) return Mismatch(fmt::format("{}[{}]", name, integers.size()), "an integer of 64 bits");
    integers.push_back(one.get<int64_t>());
  }
  return integers;
}

absl::StatusOr<JsonFields> JsonFields::Object(std::string_view name) {
  static const json::object_t* const kEmpty = new json::object_t;
  const json* value = Find(name);
  if (value == nullptr) return JsonFields(kEmpty, PathOf(name));
  return Of(*value, PathOf(name));
}

absl::StatusOr<std::vector<JsonFields>> JsonFields::Objects(std::string_view name) {
  const json* value = Find(name);
  std::vector<JsonFields> objects;
  if (value == nullptr) return objects;
  if (!value->is_array()) return Mismatch(name, "an array of objects");
  for (const json& one : *value) {
    POSENC_ASSIGN_OR_RETURN(JsonFields fields, Of(one, fmt::format("{}[{}]", PathOf(name), objects.size())));
    objects.push_back(std::move(fields));
  }
  return objects;
}

std::string JsonFields::PathOf(std::string_view name) const {
  return path_.empty() ? Quote(name) : path_ + "." + Quote(name);
}

absl::Status JsonFields::Mismatch(std::string_view name, std::string_view wanted) const {
  const auto found = object_->find(name);
  return InvalidArgument("MISMATCH", PathOf(name), found == object_->end() ? "" : found->second.type_name(),
                         fmt::format("must be {}", wanted));
}

absl::Status JsonFields::RejectOthers() const {
  for (const auto& [name, value] : *object_) {
    if (known_.contains(name)) continue;
    std::string names;
    for (const std::string& known : known_) names += (names.empty() ? "" : ", ") + known;
    return InvalidArgument("UNKNOWN_FIELD", PathOf(name), "", "must be absent: the fields are " + names);
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
