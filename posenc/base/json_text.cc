#include "posenc/base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "posenc/base/interruption.h"
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
  bool in_string = false, escaped = false;  // where the parser is
};

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Iterator over a text that keeps a parser's progress. Throws ComputationStopped at interruption points.
struct CountedText {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  Progress* progress;
  const char* end;

  reference operator*() const { return *at; }
  CountedText& operator++() {
    if (progress->escaped) {
      progress->escaped = false;
    } else if (*at == '"') {
      progress->in_string = !progress->in_string;
    } else {
      progress->escaped = progress->in_string && *at == '\\';
    }
    ++at;
    // Skips all but the last of several blanks between values: the parser keeps each blank, and prints it in an error.
    while (!progress->in_string && end - at > 1 && *at != ' ' && IsBlank(*at) && IsBlank(at[1])) ++at;
    progress->furthest = at;
    if (--progress->bytes_to_point == 0) {
      progress->bytes_to_point = kBytesBetweenPoints;
      InterruptionPoint();
    }
    return *this;
  }
  bool operator==(const CountedText& other) const { return at == other.at; }
  bool operator!=(const CountedText& other) const { return at != other.at; }
};

// Builds the tree of a text, and stops at the first error. (json::parse neither finds duplicate keys nor says where an
// error is; with a callback, it searches all siblings at the end of every object.)
class TreeBuilder : public json::json_sax_t {
 public:
  // `arrays`: null if none is left out. `tree`: null.
  TreeBuilder(std::string_view text, std::string_view root, NumberArrays* arrays, json* tree)
      : text_(text), root_(root), progress_{text.data()}, arrays_(arrays), tree_(tree) {}

  absl::Status Run() {
    const char* end = text_.data() + text_.size();
    json::sax_parse(CountedText{text_.data(), &progress_, end}, CountedText{end, &progress_, end}, this);
    return status_;
  }

  bool null() override { return left_out_ > 0 ? RefuseElement("null") : Add(nullptr); }
  bool boolean(bool value) override { return left_out_ > 0 || Add(value); }
  bool number_integer(number_integer_t value) override { return left_out_ > 0 || Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return left_out_ > 0 || Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return left_out_ > 0 || Add(value); }
  bool string(string_t& value) override { return left_out_ > 0 ? RefuseElement(value) : Add(value); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return left_out_ > 0 ? RefuseElement("{") : Open(json::value_t::object); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override {
    if (left_out_ > 0 || IsLeftOut()) return LeaveOut();
    return Open(json::value_t::array);
  }
  bool end_array() override {
    if (left_out_ == 0) return Close();
    if (--left_out_ > 0) return true;
    arrays_->texts.push_back(text_.substr(left_out_at_, progress_.furthest - text_.data() - left_out_at_));
    return Add(json::binary({}, arrays_->texts.size() - 1));
  }
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
    std::string path(root_);
    for (const Level& level : open_) {
      if (path.size() > kLongestPath) return path + "...";
      if (level.value->is_array()) {
        const bool innermost = &level == &open_.back();  // its next element is being read; else it is the last one
        path += fmt::format("[{}]", level.value->size() - (innermost ? 0 : 1));
      } else if (level.last != nullptr) {
        path += (path.empty() ? "" : ".") + Quote(level.last->first);
      }
    }
    return path;
  }
  // True if the array that begins is left out.
  bool IsLeftOut() const {
    if (arrays_ == nullptr || open_.empty()) return false;
    const Level& level = open_.back();
    return level.value->is_object() && level.last->first == arrays_->key;
  }
  bool LeaveOut() {
    if (open_.size() + left_out_ == kMaxDepth) return RefuseDepth();
    if (left_out_++ == 0) left_out_at_ = progress_.furthest - 1 - text_.data();
    return true;
  }
  bool RefuseElement(std::string_view value) {
    return Refuse(progress_.furthest - 1, value, "must be a number, true or false");
  }
  bool RefuseDepth() {
    return Refuse(progress_.furthest - 1, fmt::format("more than {} levels deep", kMaxDepth),
                  fmt::format("must be at most {} levels deep", kMaxDepth));
  }
  // Returns the place of the next value.
  json& Next() {
    if (open_.empty()) return *tree_;
    const Level& level = open_.back();
    return level.value->is_array() ? level.value->emplace_back() : level.last->second;
  }
  template <typename Value>
  bool Add(const Value& value) {
    if (!Count()) return false;
    Next() = value;
    return true;
  }
  bool Count() {
    if (arrays_ == nullptr || ++values_ <= arrays_->max_values) return true;
    return Refuse(progress_.furthest - 1, "more values",
                  fmt::format("must have at most {} values, besides those of arrays of numbers under \"{}\"",
                              arrays_->max_values, arrays_->key));
  }
  bool Open(json::value_t type) {
    if (open_.size() == kMaxDepth) return RefuseDepth();
    if (!Count()) return false;
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

  const std::string_view text_, root_;
  Progress progress_;
  NumberArrays* const arrays_;
  size_t left_out_ = 0;     // levels of the array that is being left out
  size_t left_out_at_ = 0;  // its offset in the text
  size_t values_ = 0;       // of the tree
  json* const tree_;
  std::vector<Level> open_;  // enclosing objects and arrays
  absl::Status status_;
};

// UTF-16 has a byte order mark or a NUL in every ASCII character. The parser would treat NUL as the end of the text.
absl::Status CheckCharacters(std::string_view text, std::string_view root) {
  const size_t nul = text.find('\0');
  const bool marked = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
  if (marked || nul <= 1) {
    return AtPlace(1, 1, InvalidArgument("MALFORMED", root, "UTF-16 or UTF-32", "must be UTF-8"));
  }
  if (nul == std::string_view::npos) return absl::OkStatus();
  return AtOffset(text, nul,
                  InvalidArgument("MALFORMED", root, "text with a NUL byte", "must be JSON without NUL bytes"));
}

}  // namespace

absl::Status ParseJson(std::string_view text, std::string_view root, json* tree) {
  return ParseJson(text, root, nullptr, tree);
}

absl::Status ParseJson(std::string_view text, std::string_view root, NumberArrays* arrays, json* tree) {
  POSENC_RETURN_IF_ERROR(CheckCharacters(text, root));
  return TreeBuilder(text, root, arrays, tree).Run();
}

}  // namespace posenc
