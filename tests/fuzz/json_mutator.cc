#include "tests/fuzz/json_mutator.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace posenc::fuzz {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order of members

// The objects and arrays of a value, itself included.
void Collect(Json& value, std::vector<Json*>* containers) {
  if (!value.is_structured()) return;
  containers->push_back(&value);
  for (Json& element : value) Collect(element, containers);
}

Json::iterator ElementOf(Json& container, Random& random) {
  return std::next(container.begin(), static_cast<std::ptrdiff_t>(random.Below(container.size())));
}

Json Value(Json old, Random& random) {
  switch (random.Below(10)) {
    case 0: return nullptr;
    case 1: return random.OneIn(2);
    case 2: return Json::array({random.Number(), old});
    case 3: return Json::object({{random.Text(""), old}});
    case 4: return random.OneIn(2) ? Json::array() : Json::object();
    case 5: return random.Integer();
    case 6: return random.Number();
    default: break;
  }
  if (old.is_string()) return random.Text(old.get<std::string>());
  if (old.is_number_integer())
    return static_cast<int64_t>(old.get<uint64_t>() * (1 + random.Below(2)) - random.Below(2));
  if (old.is_number()) return old.get<double>() * random.Number();
  if (old.is_boolean()) return !old.get<bool>();
  return random.Text("");
}

std::string Write(const Json& json) {
  // Strings may have become invalid UTF-8, which dump() would throw for.
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

std::string ChangeJson(std::string_view text, Random& random) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_structured() || random.OneIn(20)) return random.Text(std::string(text));
  std::vector<Json*> containers;
  Collect(json, &containers);
  Json& container = *random.Of(containers);
  const bool add = container.empty() || random.OneIn(4);
  const Json old = container.empty() ? Json() : *ElementOf(container, random);
  if (add && container.is_array()) {
    container.push_back(Value(old, random));
  } else if (add) {
    container[random.Text("")] = Value(old, random);
  } else if (random.OneIn(6)) {
    container.erase(ElementOf(container, random));
  } else if (random.OneIn(6)) {
    *ElementOf(container, random) = old;
  } else {
    Json& element = *ElementOf(container, random);
    element = Value(element, random);
  }
  return Write(json);
}

std::string CrossJson(std::string_view text, std::string_view from, Random& random) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Json other = Json::parse(from, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !other.is_object()) return std::string(from);
  std::vector<Json*> to, sources;
  Collect(json, &to);
  Collect(other, &sources);
  Json& source = *random.Of(sources);
  Json& object = *random.Of(to);
  if (!source.is_object() || source.empty() || !object.is_object()) return std::string(from);
  const auto member = ElementOf(source, random);
  object[member.key()] = member.value();
  return Write(json);
}

}  // namespace posenc::fuzz
