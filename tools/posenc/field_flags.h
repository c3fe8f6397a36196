// Flags that are fields of the API's messages: `--rope-theta` sets rope_theta, so that names, types and choices are
// those of the proto files and need no second list here.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>
#include <CLI/CLI.hpp>

namespace posenc::command {

struct FieldFlag {
  const char* field;  // its name in the proto file; a name that is not there ends the program
  const char* help;
  const char* flag = nullptr;     // absent: "--" and the field's name with dashes
  const char* choices = nullptr;  // of an enum's values, "fp32|fp16"; absent: all
};

// What a flag's value looks like:
//   numbers, strings   as they are
//   bool               nothing where its default is false for all, else true or false
//   enums              the value's name in lower case without the type's prefix, "half-split"; dashes or underscores
//   repeated numbers   "1,2.5,3"
//   Tensor             a file (tools/files/tensor_file.h), or numbers "0,5,9": INT64 [3], FP64 where one is no integer
//   PositionOffsets    "0,7,7"
//   PositionSegments   "COUNT:START[:STEP],...", or grids "TxHxW[:TxHxW[:TxHxW]]"
//   AxialRope          "DIM[:THETA[:FREQUENCY_START]],..."
// The flags write into *message, which must outlive the parsing. A second member of one oneof is an error.
void AddFieldFlags(CLI::App& app, const std::string& group, google::protobuf::Message* message,
                   std::initializer_list<FieldFlag> flags);

// The same, without help, for all fields whose names are not flags of `app` yet: what is added to a message is not
// forgotten here.
void AddOtherFieldFlags(CLI::App& app, const std::string& group, google::protobuf::Message* message);

// All of the message's fields, without help, under a prefix: "--t5" makes "--t5-num-buckets". Those of a message within
// it likewise, "--deberta-key-weight"; it is there once one of them is given. Where names meet, the outer field's
// counts. A config.json within it has no flags of its own: ModelFlags has them.
void AddPrefixedFieldFlags(CLI::App& app, const std::string& group, const std::string& prefix,
                           google::protobuf::Message* message);

// The same for the members of the message's `oneof method`, but those named, each under its own name: flags of two of
// them are an error. A group is called by the method's name and the note.
void AddMethodFlags(CLI::App& app, const std::string& note, google::protobuf::Message* message,
                    std::initializer_list<std::string_view> except);

// Whether a flag wrote anything into it.
bool IsSet(const google::protobuf::Message& message);

// "--rope-theta", for messages about a field that is set; empty where none is.
std::string FirstFlagOf(const google::protobuf::Message& message);

// "rope_theta" as "--rope-theta".
std::string FlagName(const std::string& field);

// "half-split" for v1::PAIRING_HALF_SPLIT.
std::string EnumName(const google::protobuf::EnumValueDescriptor& value);
template <typename Enum>
std::string EnumName(Enum value) {
  return EnumName(*google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value));
}

}  // namespace posenc::command
