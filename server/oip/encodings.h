// The encodings that models of the Open Inference Protocol have: which tensors and parameters each takes and returns,
// and the field of a posenc.v1 request or answer that each stands for. encodings.cc is the one list of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "posenc/service/operations.h"

namespace posenc::server {

// The way from a message to one of its fields, e.g. q.tensor. Empty: the message itself.
class FieldPath {
 public:
  FieldPath() = default;
  // Aborts if there is no such field.
  FieldPath(const google::protobuf::Descriptor* type, std::string_view text);

  const std::string& text() const { return text_; }
  bool empty() const { return fields_.empty(); }
  const google::protobuf::FieldDescriptor& last() const { return *fields_.back(); }

  // Returns the message that has the last field, and adds the messages on the way. Null if a oneof on the way has
  // another field already.
  google::protobuf::Message* MutableParent(google::protobuf::Message* root) const;
  // Returns the message that the path leads to, and adds it. Null as MutableParent().
  google::protobuf::Message* Mutable(google::protobuf::Message* root) const;
  // Returns the message that the path leads to; null if it is absent.
  const google::protobuf::Message* Find(const google::protobuf::Message& root) const;
  // True if the message has the last field. Not for the empty path.
  bool IsSet(const google::protobuf::Message& root) const;

 private:
  std::string text_;
  std::vector<const google::protobuf::FieldDescriptor*> fields_;
};

struct ParameterField {
  std::string name;
  FieldPath field;
  std::vector<int> values = {};  // of an enum, that an error offers; empty: all
};

struct InputField {
  std::string name;
  std::vector<std::string> datatypes;  // that it may have; the model's metadata show the first
  std::vector<int64_t> shape;
  bool optional;
  FieldPath field;  // a Tensor of the request
  std::vector<ParameterField> parameters = {};
};

struct OutputField {
  std::string name;
  std::string datatype;
  std::vector<int64_t> shape;
  FieldPath field;   // a Tensor of the answer
  FieldPath region;  // of the request
};

struct Encoding {
  std::string name;  // "rotary": models M.rotary and posenc.rotary
  const wire::UnaryOperation& operation;
  FieldPath model;     // a ModelConfig of the request; empty: none
  FieldPath settings;  // the message that the parameter `settings` of posenc.NAME gives as JSON; empty: the request
  std::vector<InputField> inputs;
  std::vector<OutputField> outputs;
  std::vector<ParameterField> parameters;

  // Returns the output of this name. INVALID_ARGUMENT naming `place` if there is none.
  absl::StatusOr<const OutputField*> FindOutput(const std::string& place, const std::string& output) const;
};

// Encodings of a model by its file, and by a parameter `settings`.
struct Encodings {
  Encoding rotary, table, bias, add_bias;
  Encoding sinusoidal, grid, learned;  // M.embedding, by what the file has
  Encoding embedding;                  // posenc.embedding
};
const Encodings& AllEncodings();

}  // namespace posenc::server
