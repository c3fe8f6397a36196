#include "tools/posenc/messages.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <google/protobuf/descriptor.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "posenc/v1/service.pb.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

// Ends of fields' paths whose flag has another name than the field.
constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
    {"ids", "--positions"},
    {"preset", "--precision"},
    {"tolerance_ulp", "--tolerance"},
    {"fill_kind", "--fill"},
    {"fill_value", "--fill"},
    {"alibi.rule", "--slopes"},
    {"alibi.given", "--given-slopes"},
    {"given_table.cos", "--given-cos"},
    {"given_table.sin", "--given-sin"},
    {"given_table.form", "--given-form"},
    {"given_table.per_head", "--given-per-head"},
    {"given_frequencies.heads", "--frequency-heads"},
    {"given_frequencies.axes", "--frequency-axes"},
    {"form", "--bias-form"},
    {"bias.form", "--bias-form"},
    {"cache_window", "--cache-size"},
    {"cache_window.size", "--cache-size"},
    {"cache_window.sinks", "--cache-sinks"},
    {"cache_window.renumbers", "--cache-renumbers"},
};

// A field's path: the option that sets it, or one of its parts, and the rest of the path within the option's value.
struct Target {
  const CLI::Option* option = nullptr;
  std::string rest;
};

// Returns the option of the fields parts[begin .. end), or null.
const CLI::Option* OptionOf(const CLI::App& app, const std::vector<std::string>& parts, size_t begin, size_t end) {
  const std::string path = absl::StrJoin(parts.begin() + static_cast<std::ptrdiff_t>(begin),
                                         parts.begin() + static_cast<std::ptrdiff_t>(end), ".");
  for (const auto& [field, flag] : kOtherNames) {
    if (path != field) continue;
    if (const CLI::Option* option = app.get_option_no_throw(flag)) return option;
  }
  // A table has one length rule only, and --seq-len sets it.
  if (path == "scaling_length_rule" && app.get_option_no_throw("--scaling-length") == nullptr) {
    return app.get_option_no_throw("--seq-len");
  }
  const std::string name = FlagName(absl::StrJoin(absl::StrSplit(path, '.'), "_"));
  if (const CLI::Option* option = app.get_option_no_throw(name)) return option;
  return begin == 0 ? app.get_option_no_throw(path) : nullptr;  // a positional argument
}

// Removes the index of "ids[2]" and returns it, "[2]".
std::string TakeIndex(std::string* part) {
  const size_t bracket = part->find('[');
  if (bracket == std::string::npos) return "";
  std::string index = part->substr(bracket);
  part->resize(bracket);
  return index;
}

Target Find(const CLI::App& app, const std::string& field) {
  for (const std::string_view file : {"config_json", "gguf"}) {
    const size_t at = field.find(file);
    if (at == std::string::npos || (at > 0 && field[at - 1] != '.')) continue;
    const CLI::Option* option = app.get_option_no_throw(field.substr(0, field.find('.')));  // a or b of `compare`
    if (option == nullptr) option = app.get_option_no_throw("--model");
    const size_t rest = at + file.size() + 1;
    return {option, rest < field.size() ? field.substr(rest) : ""};
  }
  std::vector<std::string> parts = absl::StrSplit(field, '.');
  std::erase(parts, "model");
  for (size_t end = parts.size(); end > 0; --end) {
    std::vector<std::string> names(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(end));
    const std::string index = TakeIndex(&names.back());
    for (size_t begin = 0; begin < end; ++begin) {
      const CLI::Option* option = OptionOf(app, names, begin, end);
      if (option == nullptr) continue;
      std::vector<std::string> rest(parts.begin() + static_cast<std::ptrdiff_t>(end), parts.end());
      std::erase(rest, "tensor");
      if (!index.empty()) rest.insert(rest.begin(), "element " + index);
      return {option, absl::StrJoin(rest, ".")};
    }
  }
  return {};
}

// Returns the flag, with its value if that is a file.
std::string Shown(const CLI::Option& option) {
  const bool file = absl::StrContains(option.get_type_name(), "FILE") || option.get_type_name() == "PATH";
  const std::string value = file && option.count() > 0 ? absl::StrJoin(option.results(), ",") : "";
  constexpr size_t kLongest = 80;
  if (value.empty() || value.size() > kLongest) return option.get_name();
  return option.nonpositional() ? absl::StrCat(option.get_name(), " ", value) : value;
}

const std::map<std::string, const google::protobuf::EnumValueDescriptor*, std::less<>>& EnumValues() {
  static const auto* const values = [] {
    auto* all = new std::map<std::string, const google::protobuf::EnumValueDescriptor*, std::less<>>;
    const google::protobuf::FileDescriptor* service = v1::ExplainRequest::descriptor()->file();
    const auto add = [&](const google::protobuf::FileDescriptor& file) {
      for (int i = 0; i < file.enum_type_count(); ++i) {
        for (int n = 0; n < file.enum_type(i)->value_count(); ++n) {
          all->emplace(file.enum_type(i)->value(n)->name(), file.enum_type(i)->value(n));
        }
      }
    };
    add(*service);
    for (int i = 0; i < service->dependency_count(); ++i) add(*service->dependency(i));
    return all;
  }();
  return *values;
}

// Returns the text with enum values replaced by what a user types, and fields' names by the flags of `app`, if it is
// not null.
std::string Translated(const CLI::App* app, std::string_view text) {
  std::string result;
  const auto in_word = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  while (!text.empty()) {
    size_t size = 0;
    // A point belongs to a word if a letter follows: a path's, not a sentence's.
    while (size < text.size() &&
           (in_word(text[size]) || (text[size] == '.' && size > 0 && size + 1 < text.size() &&
                                    absl::ascii_islower(static_cast<unsigned char>(text[size + 1]))))) {
      ++size;
    }
    const std::string word(text.substr(0, std::max<size_t>(size, 1)));
    text.remove_prefix(word.size());
    const auto value = EnumValues().find(word);
    if (value != EnumValues().end()) {
      const auto* type = value->second->type();
      result += type == v1::PrecisionPreset_descriptor() ? "--precision "
                : type == v1::Layout_descriptor()        ? "--layout "
                                                         : "";
      result += EnumName(*value->second);
    } else if (app != nullptr && word.find_first_of("_.") != std::string::npos) {
      const auto [option, rest] = Find(*app, word);
      result += option != nullptr && rest.empty() ? option->get_name() : word;
    } else {
      result += word;
    }
  }
  return result;
}

// Returns the choices of "must be one of A, B, C", without quotes.
std::vector<std::string> ChoicesIn(const std::string& limit) {
  const std::string kStart = "must be one of ";
  if (!limit.starts_with(kStart)) return {};
  std::vector<std::string> choices = absl::StrSplit(limit.substr(kStart.size()), ", ");
  for (std::string& choice : choices) std::erase(choice, '"');
  return choices;
}

}  // namespace

std::string InTypedValues(const std::string& text) { return Translated(nullptr, text); }

absl::Status Missing::Get() const {
  if (what_.empty()) return absl::OkStatus();
  if (what_.size() == 1) return UsageError("missing: " + what_[0]);
  return UsageError("missing:\n  " + absl::StrJoin(what_, "\n  "));
}

std::string InWordsOfFlags(const CLI::App& app, const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  std::string message(status.message());
  if (details.field.empty()) return message;
  const auto [option, rest] = Find(app, details.field);
  const bool in_model = absl::StrContains(details.field, "config_json") || absl::StrContains(details.field, "gguf");
  const CLI::App* fields_of = in_model ? nullptr : &app;
  std::string limit = Translated(fields_of, details.limit);
  if (option == nullptr) return Translated(fields_of, message);
  std::string text = Shown(*option) + ":";
  if (!rest.empty()) absl::StrAppend(&text, " ", rest);
  const bool says_value = !details.value.empty() && details.value != kAbsent && details.value != kPresent;
  if (says_value) absl::StrAppend(&text, " is ", InTypedValues(details.value), ";");
  if (rest.empty() && absl::StartsWith(limit, "must be one of ")) std::erase(limit, '"');  // as they are typed
  // A flag may take fewer values than its field has.
  const std::string choices = absl::StrReplaceAll(option->get_type_name(), {{"|", ", "}});
  if (rest.empty() && absl::StartsWith(details.limit, "must be one of ") && absl::StrContains(choices, ", ") &&
      EnumValues().contains(ChoicesIn(details.limit)[0])) {
    limit = "must be one of " + choices;
  }
  absl::StrAppend(&text, !rest.empty() && !says_value ? ": " : " ", limit);
  if (says_value) text += DidYouMean(details.value, ChoicesIn(limit));
  if (!details.line.empty()) absl::StrAppend(&text, " (line ", details.line, ", column ", details.column, ")");
  if (rest == "dtype") text += "; NumPy converts with array.astype(\"float32\")";
  return text;
}

}  // namespace posenc::command
