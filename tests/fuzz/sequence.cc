#include "tests/fuzz/sequence.h"

#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/coded_stream.h"

namespace posenc::fuzz {

using google::protobuf::FieldDescriptorProto;

SequenceType::SequenceType(const google::protobuf::Descriptor& element)
    : pool_(google::protobuf::DescriptorPool::generated_pool()) {
  factory_.SetDelegateToGeneratedFactory(true);
  google::protobuf::FileDescriptorProto file;
  file.set_name("sequence.proto");
  file.add_dependency(element.file()->name());
  auto& type = *file.add_message_type();
  type.set_name("Sequence");
  FieldDescriptorProto& field = *type.add_field();
  field.set_name("message");
  field.set_number(1);
  field.set_label(FieldDescriptorProto::LABEL_REPEATED);
  field.set_type(FieldDescriptorProto::TYPE_MESSAGE);
  field.set_type_name("." + element.full_name());
  prototype_ = factory_.GetPrototype(pool_.BuildFile(file)->message_type(0));
}

std::vector<std::string> Split(absl::Span<const uint8_t> sequence, size_t most) {
  constexpr uint32_t kTag = 1 << 3 | 2;
  google::protobuf::io::CodedInputStream input(sequence.data(), static_cast<int>(sequence.size()));
  std::vector<std::string> messages;
  uint32_t size;
  std::string message;
  while (messages.size() < most && input.ReadTag() == kTag && input.ReadVarint32(&size) && size <= sequence.size() &&
         input.ReadString(&message, static_cast<int>(size))) {
    messages.push_back(message);
  }
  return messages;
}

}  // namespace posenc::fuzz
