#include "tests/fuzz/message_mutator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "posenc/v1/service.pb.h"
#include "tests/fuzz/json_mutator.h"

namespace posenc::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::unique_ptr<Message> Parse(const Message& prototype, absl::Span<const uint8_t> bytes) {
  std::unique_ptr<Message> message(prototype.New());
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return nullptr;
  return message;
}

// Returns 0 if it does not fit.
size_t Write(const Message& message, absl::Span<uint8_t> out) {
  const size_t size = message.ByteSizeLong();
  return message.SerializeToArray(out.data(), static_cast<int>(out.size())) ? size : 0;
}

// Appends a message and all messages within it.
void Collect(Message* message, std::vector<Message*>* all) {
  all->push_back(message);
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection.MutableMessage(message, field), all);
      continue;
    }
    for (int n = 0; n < reflection.FieldSize(*message, field); ++n) {
      Collect(reflection.MutableRepeatedMessage(message, field, n), all);
    }
  }
}

int EnumValue(const FieldDescriptor& field, Random& random) {
  const auto& type = *field.enum_type();
  if (random.OneIn(16)) return static_cast<int>(random.Integer());
  return type.value(static_cast<int>(random.Below(type.value_count())))->number();
}

std::string Text(const FieldDescriptor& field, const std::string& old, Random& random) {
  if (field.name().starts_with("config_json")) return ChangeJson(old, random);
  std::string text = random.Text(random.OneIn(4) ? "" : old);
  // The parser refuses strings that are not UTF-8, and with them the message.
  if (field.type() == FieldDescriptor::TYPE_STRING && !random.OneIn(16)) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7f; }, '~');
  }
  return text;
}

// Sets a field that is not a message or, if it is repeated, adds an element.
void SetScalar(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  const auto set = [&](auto setter, auto adder, auto value) {
    field->is_repeated() ? (reflection.*adder)(message, field, value) : (reflection.*setter)(message, field, value);
  };
  const int64_t integer = random.Integer();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(integer));
    case FieldDescriptor::CPPTYPE_INT64: return set(&Reflection::SetInt64, &Reflection::AddInt64, integer);
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(integer));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::SetUInt64, &Reflection::AddUInt64, static_cast<uint64_t>(integer));
    case FieldDescriptor::CPPTYPE_DOUBLE: return set(&Reflection::SetDouble, &Reflection::AddDouble, random.Number());
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::SetFloat, &Reflection::AddFloat, static_cast<float>(random.Integer()));
    case FieldDescriptor::CPPTYPE_BOOL: return set(&Reflection::SetBool, &Reflection::AddBool, random.OneIn(2));
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Reflection::SetEnumValue, &Reflection::AddEnumValue, EnumValue(*field, random));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string old = field->is_repeated() ? "" : reflection.GetString(*message, field);
      return set(&Reflection::SetString, &Reflection::AddString, Text(*field, old, random));
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: return;
  }
}

// Lists of messages do not grow further. Longer ones reach nothing new, but libFuzzer takes each length for something
// new.
constexpr int kMostInList = 8;

void ChangeList(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  const int size = reflection.FieldSize(*message, field);
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (size > 0 && (random.OneIn(3) || (is_message && size >= kMostInList))) {
    reflection.SwapElements(message, field, static_cast<int>(random.Below(size)), size - 1);
    if (random.OneIn(2)) reflection.RemoveLast(message, field);
  } else if (is_message && size > 0 && random.OneIn(2)) {
    const Message& copied = reflection.GetRepeatedMessage(*message, field, static_cast<int>(random.Below(size)));
    std::unique_ptr<Message> copy(copied.New());
    copy->CopyFrom(copied);
    reflection.AddMessage(message, field)->CopyFrom(*copy);
  } else if (is_message) {
    reflection.AddMessage(message, field);
  } else {
    SetScalar(message, field, random);
    const int last = reflection.FieldSize(*message, field) - 1;
    reflection.SwapElements(message, field, static_cast<int>(random.Below(last + 1)), last);
    if (size > 0 && random.OneIn(2)) reflection.RemoveLast(message, field);
  }
}

size_t ElementBytes(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FP64:
    case v1::DATA_TYPE_INT64: return 8;
    case v1::DATA_TYPE_FP32:
    case v1::DATA_TYPE_INT32: return 4;
    case v1::DATA_TYPE_FP16:
    case v1::DATA_TYPE_BF16: return 2;
    default: return 1;
  }
}

std::string Element(v1::DataType dtype, Random& random) {
  const double number = random.Number();
  const auto single = static_cast<float>(std::clamp(number, -3e38, 3e38));  // clamp returns NaN for NaN
  const int64_t integer = random.Integer();
  std::string bytes(ElementBytes(dtype), '\0');
  const char* from = reinterpret_cast<const char*>(&integer);
  if (dtype == v1::DATA_TYPE_FP64) from = reinterpret_cast<const char*>(&number);
  if (dtype == v1::DATA_TYPE_FP32) from = reinterpret_cast<const char*>(&single);
  std::memcpy(bytes.data(), from, bytes.size());
  return bytes;
}

// Changes an element, or type or shape together with the data, so that they still match.
void ChangeTensor(v1::Tensor* tensor, Random& random) {
  constexpr int64_t kMostElements = 512;
  std::string& data = *tensor->mutable_data();
  if (!data.empty() && random.OneIn(2)) {
    const std::string element = Element(tensor->dtype(), random);
    const size_t at = random.Below(data.size()) / element.size() * element.size();
    return void(data.replace(at, std::min(element.size(), data.size() - at), element, 0, data.size() - at));
  }
  if (random.OneIn(3)) {
    const int known = v1::DataType_MAX;
    tensor->set_dtype(static_cast<v1::DataType>(1 + random.Below(known)));
  } else if (tensor->shape().empty() || random.OneIn(8)) {
    tensor->add_shape(static_cast<int64_t>(random.Below(4)));
  } else if (random.OneIn(6)) {
    tensor->mutable_shape()->RemoveLast();
  } else {
    tensor->set_shape(static_cast<int>(random.Below(tensor->shape_size())), static_cast<int64_t>(random.Below(9)));
  }
  int64_t elements = 1;
  for (const int64_t size : tensor->shape()) {
    if (size < 0 || (size != 0 && elements > kMostElements / size)) return;
    elements *= size;
  }
  const size_t bytes = static_cast<size_t>(elements) * ElementBytes(tensor->dtype());
  while (data.size() < bytes) data += Element(tensor->dtype(), random);
  data.resize(bytes);
}

// Changes one field of the message.
void Change(Message* message, Random& random) {
  if (message->GetDescriptor() == v1::Tensor::descriptor() && !random.OneIn(3)) {
    return ChangeTensor(static_cast<v1::Tensor*>(message), random);
  }
  const Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  const FieldDescriptor* field = type.field(static_cast<int>(random.Below(type.field_count())));
  const Reflection& reflection = *message->GetReflection();
  if (random.OneIn(8)) return reflection.ClearField(message, field);
  if (field->is_repeated()) return ChangeList(message, field, random);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return SetScalar(message, field, random);
  // Adds the message if it is absent; for a member of a oneof, that clears the others.
  Change(reflection.MutableMessage(message, field), random);
}

}  // namespace

void ChangeFields(Message* message, Random& random) {
  for (size_t changes = 1 + random.Below(3); changes > 0; --changes) {
    std::vector<Message*> all;
    Collect(message, &all);
    Change(random.Of(all), random);
  }
}

size_t MutateMessage(const Message& prototype, absl::Span<uint8_t> bytes, size_t size, Random& random,
                     const std::function<void(Message*, Random&)>& also) {
  const std::unique_ptr<Message> message = random.OneIn(8) ? nullptr : Parse(prototype, bytes.first(size));
  if (message == nullptr) return LLVMFuzzerMutate(bytes.data(), size, bytes.size());
  ChangeFields(message.get(), random);
  also(message.get(), random);
  const size_t written = Write(*message, bytes);
  return written > 0 ? written : LLVMFuzzerMutate(bytes.data(), size, bytes.size());
}

size_t CrossMessages(const Message& to_type, absl::Span<const uint8_t> to, const Message& from_type,
                     absl::Span<const uint8_t> from, absl::Span<uint8_t> out, Random& random) {
  const std::unique_ptr<Message> target = Parse(to_type, to), source = Parse(from_type, from);
  if (target == nullptr || source == nullptr) return 0;
  std::vector<Message*> parts, places;
  Collect(source.get(), &parts);
  Collect(target.get(), &places);
  Message* part = random.Of(parts);
  std::erase_if(places, [part](Message* place) { return place->GetDescriptor() != part->GetDescriptor(); });
  if (places.empty()) return 0;
  Message* place = random.Of(places);
  const FieldDescriptor* text = place->GetDescriptor()->FindFieldByName("config_json");
  if (text != nullptr && random.OneIn(2)) {
    const Reflection& reflection = *place->GetReflection();
    reflection.SetString(place, text,
                         CrossJson(reflection.GetString(*place, text), reflection.GetString(*part, text), random));
  } else if (random.OneIn(2)) {
    place->MergeFrom(*part);
  } else {
    place->CopyFrom(*part);
  }
  return Write(*target, out);
}

}  // namespace posenc::fuzz
