#include "server/oip/wording.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "server/oip/settings.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;

constexpr char kModelName[] = "model_name";

// Returns what follows `path` in the path of a field, "" or ".dtype" or "[3]"; nothing if the field is not within it.
std::optional<std::string> RestAfter(std::string_view path, std::string_view field) {
  if (path.empty() || !field.starts_with(path)) return std::nullopt;
  const std::string_view rest = field.substr(path.size());
  if (!rest.empty() && rest[0] != '.' && rest[0] != '[') return std::nullopt;
  return std::string(rest);
}

// The protocol's name for a part of a Region: it has parameters in place of it.
std::string PartOfRegion(const std::string& rest) {
  return absl::StrCat(".shared_memory_", rest == ".offset" || rest == ".byte_size" ? rest.substr(1) : "region");
}

// The protocol's name for a part of a Tensor. Bytes are those of the input as a whole, wherever the request has them.
std::string PartOfTensor(const std::string& rest) {
  if (rest == ".dtype") return ".datatype";
  if (rest == ".data") return "";
  if (const auto of_region = RestAfter(".region", rest)) return PartOfRegion(*of_region);
  return rest;
}

class Wording {
 public:
  Wording(const Encoding& encoding, const Message& request) : encoding_(encoding), request_(request) {
    for (const ParameterField& parameter : encoding.parameters) names_.push_back({parameter.name, &parameter.field});
    for (const InputField& input : encoding.inputs) names_.push_back({input.name, &input.field});
  }

  std::string FieldOf(const std::string& field) const {
    if (const auto exact = Exact(field)) return *exact;
    if (!encoding_.model.empty() && encoding_.model.Find(request_) != nullptr) {
      for (const FieldPath* path : {&encoding_.model, &encoding_.settings}) {
        if (RestAfter(path->text(), field)) return kModelName;  // what is not of the request is of the model's file
      }
    } else if (const auto rest = RestAfter(encoding_.settings.text(), field)) {
      return kSettings + *rest;
    }
    if (request_.GetDescriptor()->FindFieldByName(field.substr(0, field.find_first_of(".["))) == nullptr) return field;
    for (std::string path = field; !path.empty(); path = ParentOf(path)) {
      if (const std::vector<std::string> names = Within(path); !names.empty()) return names[0];
    }
    return encoding_.settings.empty() && encoding_.model.empty() ? absl::StrCat(kSettings, ".", field) : field;
  }

  // Replaces names of fields in a text. Those without a dot are relative to the message that has `field`.
  std::string TextOf(const std::string& field, const std::string& text) const {
    const std::string parent = ParentOf(field);
    std::string result;
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      while (IsOfPath(text, end)) ++end;
      if (end == begin) {
        result += text[begin++];
        continue;
      }
      const std::string word = text.substr(begin, end - begin);
      absl::StrAppend(&result, NameOfWord(parent, word));
      begin = end;
    }
    return result;
  }

  // Names of inputs and parameters whose fields are in the message or the oneof of this path; first those that the
  // request has.
  std::vector<std::string> Within(std::string_view field) const {
    const std::string_view path = field.substr(0, field.find('['));
    std::vector<std::string> present, absent;
    for (const auto& [name, of] : names_) {
      if (!IsWithin(*of, path)) continue;
      (of->IsSet(request_) ? present : absent).push_back(name);
    }
    present.insert(present.end(), absent.begin(), absent.end());
    return present;
  }

 private:
  struct Name {
    std::string name;
    const FieldPath* field;
  };

  static bool IsOfName(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
  // True for a character of a path such as positions.ids, but not for a full stop after it.
  static bool IsOfPath(const std::string& text, size_t at) {
    if (at < text.size() && text[at] == '.') ++at;
    return at < text.size() && IsOfName(text[at]);
  }
  static std::string ParentOf(const std::string& path) {
    const size_t dot = path.rfind('.');
    return dot == path.npos ? "" : path.substr(0, dot);
  }

  static bool IsWithin(const FieldPath& of, std::string_view path) {
    if (RestAfter(path, of.text())) return true;
    const auto* oneof = of.last().real_containing_oneof();
    if (oneof == nullptr) return false;
    const size_t dot = of.text().rfind('.');
    return absl::StrCat(dot == std::string::npos ? "" : of.text().substr(0, dot + 1), oneof->name()) == path;
  }

  // The name of a field that an input, an output or a parameter stands for, or that is a part of one.
  std::optional<std::string> Exact(const std::string& field) const {
    for (const InputField& input : encoding_.inputs) {
      for (const ParameterField& parameter : input.parameters) {
        if (field == parameter.field.text()) return absl::StrCat(input.name, ".", parameter.name);
      }
      if (const auto rest = RestAfter(input.field.text(), field)) return input.name + PartOfTensor(*rest);
    }
    for (const OutputField& output : encoding_.outputs) {
      if (const auto rest = RestAfter(output.region.text(), field)) return output.name + PartOfRegion(*rest);
    }
    for (const ParameterField& parameter : encoding_.parameters) {
      if (RestAfter(parameter.field.text(), field)) return parameter.name;
    }
    return std::nullopt;
  }

  std::string NameOfWord(const std::string& parent, const std::string& word) const {
    if (word.find('.') != word.npos) return Exact(word).value_or(word);
    const std::string path = absl::StrCat(parent, ".", word);
    for (const InputField& input : encoding_.inputs) {
      for (const ParameterField& parameter : input.parameters) {
        if (path == parameter.field.text()) return absl::StrCat(input.name, ".", parameter.name);
      }
    }
    for (const auto& [name, of] : names_) {
      if (path == of->text() && name != parent) return name;  // "tensor" of q is q, and a usual word
    }
    return word;
  }

  const Encoding& encoding_;
  const Message& request_;
  std::vector<Name> names_;
};

}  // namespace

absl::Status InWordsOf(const Encoding& encoding, const Message& request, const absl::Status& status) {
  if (status.ok() || IsWouldBlock(status)) return status;
  const Wording wording(encoding, request);
  const ErrorDetails before = DetailsOf(status);
  const absl::Status renamed = Renamed(status, [&](const std::string& field) { return wording.FieldOf(field); });
  if (before.limit.empty()) return renamed;
  std::string limit = wording.TextOf(before.field, before.limit);
  const std::vector<std::string> choices = wording.Within(before.field);
  if (before.reason == "MISSING" && choices.size() > 1) {
    // After the colon are the fields of a oneof, not all of which the protocol has.
    limit = absl::StrCat(before.limit.substr(0, before.limit.find(':')), ": ", absl::StrJoin(choices, " or "));
  }
  std::string message(renamed.message());
  const size_t at = message.rfind(before.limit);
  if (limit == before.limit || at == message.npos) return renamed;
  message.replace(at, before.limit.size(), limit);
  ErrorDetails after = DetailsOf(renamed);
  after.limit = std::move(limit);
  return Restore(renamed.code(), message, after);
}

}  // namespace posenc::server
