// Helpers to compare two readings of a message.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "posenc/v1/service.pb.h"

namespace posenc {

// Every request message of the service.
inline std::vector<const google::protobuf::Message*> RequestTypes() {
  const google::protobuf::ServiceDescriptor* service =
      v1::ApplyRotaryRequest::descriptor()->file()->FindServiceByName("PositionalEncodingService");
  std::vector<const google::protobuf::Message*> types;
  for (int n = 0; n < service->method_count(); ++n) {
    types.push_back(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(service->method(n)->input_type()));
  }
  return types;
}

inline std::string Canonical(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream output(&bytes);
  google::protobuf::io::CodedOutputStream coded(&output);
  coded.SetSerializationDeterministic(true);
  (void)message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// Replaces the ticket in each Tensor and TensorChunk by the bytes that it stands for.
inline void Resolve(
    google::protobuf::Message* message,
    absl::FunctionRef<std::string(const google::protobuf::Message& holder, const std::string& ticket)> bytes_of) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor* type = message->GetDescriptor();
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  if (type == v1::Tensor::descriptor() || type == v1::TensorChunk::descriptor()) {
    const FieldDescriptor* data = type->FindFieldByName("data");
    reflection.SetString(message, data, bytes_of(*message, reflection.GetString(*message, data)));
    return;
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Resolve(reflection.MutableMessage(message, field), bytes_of);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Resolve(reflection.MutableRepeatedMessage(message, field, i), bytes_of);
    }
  }
}

}  // namespace posenc
