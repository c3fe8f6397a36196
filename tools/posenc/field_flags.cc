#include "tools/posenc/field_flags.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/posenc/messages.h"
#include "tools/posenc/values.h"

namespace posenc::command {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string WithDashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Returns the enum value names that the flag accepts: flag.choices, or all except the zero value, "not given".
std::vector<std::string> Choices(const FieldDescriptor& field, const FieldFlag& flag) {
  if (flag.choices) return absl::StrSplit(flag.choices, '|');
  std::vector<std::string> choices;
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return choices;
  const EnumDescriptor& type = *field.enum_type();
  for (int i = 1; i < type.value_count(); ++i) choices.push_back(EnumName(*type.value(i)));
  return choices;
}

absl::StatusOr<const EnumValueDescriptor*> ParseEnum(const EnumDescriptor& type,
                                                     const std::vector<std::string>& choices, const std::string& text) {
  const std::string wanted = WithDashes(absl::AsciiStrToLower(text));
  if (std::find(choices.begin(), choices.end(), wanted) != choices.end()) {
    for (int i = 1; i < type.value_count(); ++i) {
      if (EnumName(*type.value(i)) == wanted) return type.value(i);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Quote(text), "\" is not one of ", absl::StrJoin(choices, ", "), DidYouMean(wanted, choices)));
}

// True for a message whose fields have flags of their own, false for one that a single flag sets.
bool IsOfFlags(const FieldDescriptor& field) {
  const Descriptor* type = field.message_type();
  return type != nullptr && !field.is_repeated() && type != v1::Tensor::descriptor() &&
         type != v1::PositionSegments::descriptor() && type != v1::AxialRope::descriptor() &&
         type != v1::PositionOffsets::descriptor();
}

absl::Status SetMessage(const std::string& text, Message* value) {
  if (value->GetDescriptor() == v1::Tensor::descriptor()) {
    POSENC_ASSIGN_OR_RETURN(static_cast<v1::Tensor&>(*value), ParseTensor(text));
  } else if (value->GetDescriptor() == v1::PositionSegments::descriptor()) {
    POSENC_ASSIGN_OR_RETURN(static_cast<v1::PositionSegments&>(*value), ParseSegments(text));
  } else if (value->GetDescriptor() == v1::AxialRope::descriptor()) {
    POSENC_ASSIGN_OR_RETURN(static_cast<v1::AxialRope&>(*value), ParseAxial(text));
  } else {
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, ParseInt64s(text));
    static_cast<v1::PositionOffsets&>(*value).mutable_offset()->Assign(offsets.begin(), offsets.end());
  }
  return absl::OkStatus();
}

absl::Status SetRepeated(const FieldDescriptor& field, const std::string& text, Message* message) {
  const auto* reflection = message->GetReflection();
  reflection->ClearField(message, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    POSENC_ASSIGN_OR_RETURN(const std::vector<double> numbers, ParseDoubles(text));
    for (double number : numbers) reflection->AddDouble(message, &field, number);
  } else {
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseInt64s(text));
    for (int64_t number : numbers) reflection->AddInt64(message, &field, number);
  }
  return absl::OkStatus();
}

absl::Status SetField(const FieldDescriptor& field, const std::vector<std::string>& choices, const std::string& text,
                      Message* message) {
  const auto* reflection = message->GetReflection();
  if (field.is_repeated()) return SetRepeated(field, text, message);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      POSENC_ASSIGN_OR_RETURN(const double number, ParseDouble(text));
      reflection->SetDouble(message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      POSENC_ASSIGN_OR_RETURN(const int64_t number, ParseInt64(text));
      reflection->SetInt64(message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      POSENC_ASSIGN_OR_RETURN(const int64_t number, ParseInt64(text));
      if (number < 0 || number > UINT32_MAX) return absl::InvalidArgumentError("is not between 0 and 4294967295");
      reflection->SetUInt32(message, &field, static_cast<uint32_t>(number));
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return absl::InvalidArgumentError("is neither true nor false");
      reflection->SetBool(message, &field, text == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      POSENC_ASSIGN_OR_RETURN(const auto* value, ParseEnum(*field.enum_type(), choices, text));
      reflection->SetEnum(message, &field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: return SetMessage(text, reflection->MutableMessage(message, &field));
    default: reflection->SetString(message, &field, text); return absl::OkStatus();
  }
}

// Returns the member of the field's oneof that is set already, if it is another one; null if there is none.
const FieldDescriptor* Rival(const FieldDescriptor& field, const Message& message) {
  const auto* oneof = field.real_containing_oneof();
  const auto* rival = oneof ? message.GetReflection()->GetOneofFieldDescriptor(message, oneof) : nullptr;
  return rival == &field ? nullptr : rival;
}

std::string TypeName(const FieldDescriptor& field, const std::vector<std::string>& choices) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: return absl::StrJoin(choices, "|");
    case FieldDescriptor::CPPTYPE_BOOL: return "true|false";
    case FieldDescriptor::CPPTYPE_STRING: return "TEXT";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.message_type() == v1::Tensor::descriptor()) return "FILE|N,N,...";
      if (field.message_type() == v1::AxialRope::descriptor()) return "DIM:THETA:START,...[,alternating]";
      return field.message_type() == v1::PositionSegments::descriptor() ? "COUNT:START:STEP,..." : "N,N,...";
    default: return field.is_repeated() ? "N,N,..." : "N";
  }
}

// Target of a flag: a message nested in messages, which the first given flag creates.
struct Place {
  Message* root;
  std::vector<const FieldDescriptor*> path;

  Place Within(const FieldDescriptor& field) const {
    Place inner = *this;
    inner.path.push_back(&field);
    return inner;
  }
};

// Returns the message at `place`, created if absent, for a flag that sets its `field`. Throws ValidationError if an
// earlier flag set another member of a oneof.
Message* Enter(const Place& place, const FieldDescriptor& field, const std::string& flag) {
  Message* message = place.root;
  for (const FieldDescriptor* next : place.path) {
    if (const auto* rival = Rival(*next, *message)) {
      throw CLI::ValidationError(
          flag, absl::StrCat("not allowed with flags of ", rival->name(), "; give those of one method"));
    }
    message = message->GetReflection()->MutableMessage(message, next);
  }
  if (const auto* rival = Rival(field, *message)) {
    throw CLI::ValidationError(flag, "cannot be combined with " + FlagName(rival->name()) + "; give one of them");
  }
  return message;
}

// Flags of the messages' own fields, for FirstFlagOf().
std::map<std::pair<const Message*, const FieldDescriptor*>, std::string>& FlagsOfFields() {
  static auto* const flags = new std::map<std::pair<const Message*, const FieldDescriptor*>, std::string>;
  return *flags;
}

void AddFieldFlag(CLI::App& app, const std::string& group, const Place& place, const FieldDescriptor& field,
                  const FieldFlag& flag) {
  const std::string name = flag.flag ? flag.flag : FlagName(field.name());
  if (place.path.empty()) FlagsOfFields().insert_or_assign({place.root, &field}, name.substr(0, name.find(',')));
  const std::vector<std::string> choices = Choices(field, flag);
  const auto set = [&field, choices, place, name = name.substr(0, name.find(','))](const std::string& text) {
    const absl::Status status = SetField(field, choices, text, Enter(place, field, name));
    if (!status.ok()) Refuse(name, status);
  };
  CLI::Option* option =
      field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL && !field.has_presence()
          ? app.add_flag_callback(
                name, [set] { set("true"); }, flag.help)
          : app.add_option_function<std::string>(name, set, flag.help)->type_name(TypeName(field, choices));
  option->group(group);
}

void AddPrefixedFlags(CLI::App& app, const std::string& group, const std::string& prefix, const Place& place,
                      const Descriptor& type) {
  for (const bool within : {false, true}) {
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string flag = prefix + FlagName(field.name()).substr(1);
      if (field.message_type() == v1::ModelConfig::descriptor()) continue;  // ModelFlags has the flags of --model
      if (within != IsOfFlags(field) || app.get_option_no_throw(flag) != nullptr) continue;
      if (within) {
        AddPrefixedFlags(app, group, flag, place.Within(field), *field.message_type());
      } else {
        AddFieldFlag(app, group, place, field, {nullptr, "", flag.c_str()});
      }
    }
  }
}

}  // namespace

std::string EnumName(const EnumValueDescriptor& value) {
  // The zero value is PREFIX_UNSPECIFIED, and the others share the prefix.
  constexpr size_t kUnspecified = sizeof("UNSPECIFIED") - 1;
  const size_t prefix = value.type()->value(0)->name().size() - kUnspecified;
  return WithDashes(absl::AsciiStrToLower(value.name().substr(prefix)));
}

std::string FlagName(std::string_view field) { return "--" + WithDashes(std::string(field)); }

bool IsSet(const Message& message) { return !FirstFlagOf(message).empty(); }

std::string FirstFlagOf(const Message& message) {
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  if (set.empty()) return "";
  const FieldDescriptor& first = *set[0];
  if (const auto flag = FlagsOfFields().find({&message, &first}); flag != FlagsOfFields().end()) return flag->second;
  const std::string inner = IsOfFlags(first) ? FirstFlagOf(message.GetReflection()->GetMessage(message, &first)) : "";
  return FlagName(first.name()) + (inner.empty() ? "" : inner.substr(1));
}

void AddFieldFlags(CLI::App& app, const std::string& group, Message* message, std::initializer_list<FieldFlag> flags) {
  for (const FieldFlag& flag : flags) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(flag.field);
    if (field == nullptr) {
      std::fprintf(stderr, "posenc: %s has no field %s\n", std::string(message->GetDescriptor()->name()).c_str(),
                   flag.field);
      std::abort();
    }
    AddFieldFlag(app, group, {message, {}}, *field, flag);
  }
}

void AddOtherFieldFlags(CLI::App& app, const std::string& group, Message* message) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (app.get_option_no_throw(FlagName(field.name())) == nullptr) {
      AddFieldFlag(app, group, {message, {}}, field, {nullptr, ""});
    }
  }
}

void AddPrefixedFieldFlags(CLI::App& app, const std::string& group, const std::string& prefix, Message* message) {
  AddPrefixedFlags(app, group, prefix, {message, {}}, *message->GetDescriptor());
}

void AddMethodFlags(CLI::App& app, const std::string& note, Message* message,
                    std::initializer_list<std::string_view> except) {
  const auto* oneof = message->GetDescriptor()->FindOneofByName("method");
  for (int n = 0; n < oneof->field_count(); ++n) {
    const FieldDescriptor& field = *oneof->field(n);
    if (std::find(except.begin(), except.end(), field.name()) != except.end()) continue;
    AddPrefixedFlags(app, absl::StrCat(field.name(), note), FlagName(field.name()), {message, {&field}},
                     *field.message_type());
  }
}

}  // namespace posenc::command
