#include "posenc/model/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kLongestPath = 256;
// The parser makes up to half a MiB in small blocks of this many bytes. Most files have fewer.
constexpr int kBytesBetweenPoints = 16 << 10;

// Adds the line and the column of an offset.
absl::Status AtOffset(std::string_view text, size_t offset, const absl::Status& status) {
  const std::string_view before = text.substr(0, offset);
  const size_t start = before.find_last_of('\n') + 1;  // 0 if there is none
  return AtPlace(1 + std::count(before.begin(), before.end(), '\n'), static_cast<int64_t>(offset - start) + 1, status);
}

// Says how far the parser has read a text, and when it reaches the next interruption point.
struct Progress {
  const char* furthest;  // the first character that the parser has not read
  int bytes_to_point = kBytesBetweenPoints;
};

// Iterator over a text that keeps a parser's progress. Throws ComputationStopped at interruption points.
struct Reading {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  Progress* progress;

  reference operator*() const { return *at; }
  Reading& operator++() {
    progress->furthest = ++at;
    if (--progress->bytes_to_point == 0) {
      progress->bytes_to_point = kBytesBetweenPoints;
      InterruptionPoint();
    }
    return *this;
  }
  bool operator==(const Reading& other) const { return at == other.at; }
  bool operator!=(const Reading& other) const { return at != other.at; }
};

// Builds the tree of a text, and stops at the first error. (json::parse neither finds duplicate keys nor says where an
// error is; with a callback, it searches all siblings at the end of every object.)
class TreeBuilder : public json::json_sax_t {
 public:
  // `tree`: null.
  TreeBuilder(std::string_view text, json* tree) : text_(text), progress_{text.data()}, tree_(tree) {}

  absl::Status Run() {
    const char* end = text_.data() + text_.size();
    json::sax_parse(Reading{text_.data(), &progress_}, Reading{end, &progress_}, this);
    return status_;
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(value); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return Open(json::value_t::object); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(json::value_t::array); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    Level& level = open_.back();
    const auto [entry, inserted] = level.value->get_ref<json::object_t&>().try_emplace(key);
    level.last = &*entry;
    if (inserted) return true;
    return Refuse(OpeningQuote(), "given twice", "must be given once");
  }
  bool parse_error(size_t, const std::string& token, const json::exception& error) override {
    constexpr int kOverflow = 406;  // the library's number for it
    if (error.id == kOverflow) {
      // The parser has read the character after the number.
      return Refuse(progress_.furthest - 1 - token.size(), token, "must be a number that a float64 can hold");
    }
    std::string_view cause = error.what();  // "... while parsing value - invalid literal; last read: ..."
    if (const size_t dash = cause.find(" - "); dash != std::string_view::npos) cause.remove_prefix(dash + 3);
    cause = cause.substr(0, cause.find("; last read"));
    const bool ended = token.empty() || cause.starts_with("unexpected end of input");
    return Refuse(progress_.furthest - 1, ended ? "the end of the file" : token,
                  fmt::format("must be valid JSON in UTF-8: {}", Quote(cause, 200)));
  }

 private:
  struct Level {
    json* value;                                 // an object or array
    json::object_t::value_type* last = nullptr;  // the object's last entry
  };

  // Path of the value that is being read.
  std::string Path() const {
    std::string path(kConfigJson);
    for (const Level& level : open_) {
      if (path.size() > kLongestPath) return path + "...";
      if (level.value->is_array()) {
        const bool innermost = &level == &open_.back();  // its next element is being read; else it is the last one
        path += fmt::format("[{}]", level.value->size() - (innermost ? 0 : 1));
      } else if (level.last != nullptr) {
        path += "." + Quote(level.last->first);
      }
    }
    return path;
  }
  // Returns the place of the next value.
  json& Next() {
    if (open_.empty()) return *tree_;
    const Level& level = open_.back();
    return level.value->is_array() ? level.value->emplace_back() : level.last->second;
  }
  template <typename Value>
  bool Add(const Value& value) {
    Next() = value;
    return true;
  }
  bool Open(json::value_t type) {
    if (open_.size() == kMaxDepth) {
      return Refuse(progress_.furthest - 1, fmt::format("more than {} levels deep", kMaxDepth),
                    fmt::format("must be at most {} levels deep", kMaxDepth));
    }
    json& value = Next();
    value = type;
    open_.push_back({&value});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  // The quotation mark before the key or string that the parser has just read.
  const char* OpeningQuote() const {
    const char* at = progress_.furthest - 1;  // the closing one
    for (bool escaped = true; escaped && at > text_.data();) {
      do --at;
      while (at > text_.data() && *at != '"');
      const char* slash = at;
      while (slash > text_.data() && slash[-1] == '\\') --slash;
      escaped = (at - slash) % 2 != 0;
    }
    return at;
  }
  bool Refuse(const char* place, std::string_view value, std::string_view limit) {
    const std::string_view before = text_.substr(0, std::max<ptrdiff_t>(place - text_.data(), 0));
    status_ = AtOffset(text_, before.size(), InvalidArgument("MALFORMED", Path(), value, limit));
    return false;
  }

  const std::string_view text_;
  Progress progress_;
  json* const tree_;
  std::vector<Level> open_;  // enclosing objects and arrays
  absl::Status status_;
};

// UTF-16 has a byte order mark or a NUL in every ASCII character. The parser would treat NUL as the end of the text.
absl::Status CheckCharacters(std::string_view text) {
  const size_t nul = text.find('\0');
  const bool marked = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
  if (marked || nul <= 1) {
    return AtPlace(1, 1, InvalidArgument("MALFORMED", kConfigJson, "UTF-16 or UTF-32", "must be UTF-8"));
  }
  if (nul == std::string_view::npos) return absl::OkStatus();
  return AtOffset(text, nul,
                  InvalidArgument("MALFORMED", kConfigJson, "text with a NUL byte", "must be JSON without NUL bytes"));
}

// Small blocks are refused at the next interruption point. The exceptions pass through the parser as its own do.
absl::Status BuildTree(std::string_view text, json* tree) {
  const LargeBlocksMayBeRefused scope;
  return TreeBuilder(text, tree).Run();
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
  POSENC_RETURN_IF_ERROR(CheckCharacters(text));
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
    if (Find(name) != nullptr) return Path(name);
  }
  for (std::string_view name : names) {
    if (!name.empty()) return Path(name);
  }
  return path_;
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
