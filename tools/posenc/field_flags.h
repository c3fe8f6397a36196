// Flags generated from the API's message fields: `--rope-theta` sets rope_theta. Names, types and choices come from the
// proto files, so no second list is needed here.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>
#include <CLI/CLI.hpp>

namespace posenc::command {

struct FieldFlag {
  const char* field;  // name in the proto file; an unknown name aborts the program
  std::string help;
  const char* flag = nullptr;     // or several, "--name,--other"; null: "--" and the field's name with dashes
  const char* choices = nullptr;  // accepted enum values, "fp32|fp16"; null: all
};

// Syntax of a flag's value:
//   numbers, strings   unquoted, without further syntax
//   bool               no value if the field has no presence (default false), else true or false
//   enums              the value's name in lower case without the type's prefix, "half-split"; dashes or underscores
//   repeated numbers   "1,2.5,3"
//   Tensor             a file (tools/files/tensor_file.h), or numbers "0,5,9": INT64 [3], FP64 where one is no integer
//   PositionOffsets    "0,7,7"
//   PositionSegments   "COUNT:START[:STEP],...", or grids "TxHxW[:TxHxW[:TxHxW]]"
//   AxialRope          "DIM[:THETA[:FREQUENCY_START]],..."
// The flags write into *message, which must outlive the parsing. Setting two members of one oneof is an error.
void AddFieldFlags(CLI::App& app, const std::string& group, google::protobuf::Message* message,
                   std::initializer_list<FieldFlag> flags);

// Adds a flag without help text for every field whose name is not a flag of `app` yet, so that fields added to a
// message later get flags too.
void AddOtherFieldFlags(CLI::App& app, const std::string& group, google::protobuf::Message* message);

// Adds a flag without help text for every field of the message, with a prefix: "--t5" makes "--t5-num-buckets". Fields
// of nested messages get flags too ("--deberta-key-weight"); the first one given creates the nested message. If two
// names collide, the outer field gets the flag. A nested config.json (ModelConfig) gets no flags: ModelFlags has them.
void AddPrefixedFieldFlags(CLI::App& app, const std::string& group, const std::string& prefix,
                           google::protobuf::Message* message);

// Adds prefixed flags for each member of the message's `oneof method`, except those in `except`; the prefix is the
// member's name. Flags of two members together are an error. A group's name is the method's name plus `note`.
void AddMethodFlags(CLI::App& app, const std::string& note, google::protobuf::Message* message,
                    std::initializer_list<std::string_view> except);

// True if a flag wrote any field of the message.
bool IsSet(const google::protobuf::Message& message);

// Returns the flag of the first set field ("--rope-theta"), for error messages; empty if no field is set.
std::string FirstFlagOf(const google::protobuf::Message& message);

// Returns "--rope-theta" for "rope_theta".
std::string FlagName(std::string_view field);

// Returns "half-split" for v1::PAIRING_HALF_SPLIT.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value);
template <typename Enum>
std::string EnumName(Enum value) {
  const auto* known = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return known == nullptr ? std::to_string(value) : EnumName(*known);  // null: of a newer server
}

}  // namespace posenc::command
