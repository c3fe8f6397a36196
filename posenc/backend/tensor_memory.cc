#include "posenc/backend/tensor_memory.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/wire/carriers.h"
#include "posenc/wire/rpcs.h"

namespace posenc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

const wire::LeadingFields& FieldsToTensors() {
  static const auto* const fields = [] {
    std::vector<const Descriptor*> roots;
    for (const wire::RpcDescription& rpc : wire::Rpcs()) {
      roots.push_back(rpc.request.GetDescriptor());
      roots.push_back(rpc.response.GetDescriptor());
    }
    return new wire::LeadingFields(roots, {v1::Tensor::descriptor()});
  }();
  return *fields;
}

std::string Input(size_t n) { return absl::StrCat("inputs[", n, "]"); }
std::string Output(size_t n) { return absl::StrCat("outputs[", n, "]"); }
std::string Bytes(size_t size) { return absl::StrCat(size, " bytes"); }
absl::Span<const std::byte> BytesAt(const void* data, int64_t size) {
  return {static_cast<const std::byte*>(data), static_cast<size_t>(size)};
}

}  // namespace

void ForEachTensor(const Message& message, absl::FunctionRef<void(const v1::Tensor&)> visit) {
  if (message.GetDescriptor() == v1::Tensor::descriptor()) return visit(static_cast<const v1::Tensor&>(message));
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsToTensors().Of(message.GetDescriptor())) {
    if (!field->is_repeated()) {
      if (reflection.HasField(message, field)) ForEachTensor(reflection.GetMessage(message, field), visit);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      ForEachTensor(reflection.GetRepeatedMessage(message, field, i), visit);
    }
  }
}

bool Overlap(absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

absl::Status CheckMemory(const Message& request, const CallOptions& options) {
  std::vector<const v1::Tensor*> tensors;
  if (!options.inputs.empty()) {
    ForEachTensor(request, [&tensors](const v1::Tensor& tensor) { tensors.push_back(&tensor); });
  }
  for (size_t n = 0; n < options.inputs.size(); ++n) {
    const auto found = std::find(tensors.begin(), tensors.end(), options.inputs[n].tensor);
    if (found == tensors.end()) {
      return InvalidArgument("NOT_READ", Input(n), "", "must be of a tensor of the request, and of one only once");
    }
    if (!(*found)->data().empty()) {
      return InvalidArgument("CONFLICT", Input(n), Bytes((*found)->data().size()), "the tensor has data of its own");
    }
    tensors.erase(found);
  }
  for (size_t n = 0; n < options.outputs.size(); ++n) {
    for (size_t m = 0; m < n; ++m) {
      if (Overlap(options.outputs[n], options.outputs[m])) {
        return InvalidArgument("CONFLICT", Output(n), "", absl::StrCat("must not overlap ", Output(m)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMemory(int64_t q_bytes, int64_t k_bytes, const RotaryMemory& memory) {
  struct Named {
    const char* name;
    const TensorMemory& tensor;
    int64_t bytes;
  };
  const Named operands[] = {{"q", memory.q, q_bytes}, {"k", memory.k, k_bytes}};
  for (const Named& written : operands) {
    if (written.bytes == 0) continue;
    if (written.tensor.input == nullptr || written.tensor.output == nullptr) {
      return InvalidArgument("MISSING", std::string("memory.") + written.name, "", "input and output are required");
    }
    for (const Named& other : operands) {
      if (other.bytes == 0) continue;
      const bool itself = &other == &written;
      const bool in_place = itself && written.tensor.input == written.tensor.output;
      const auto to = BytesAt(written.tensor.output, written.bytes);
      const bool input = !in_place && Overlap(to, BytesAt(other.tensor.input, other.bytes));
      const bool output = !itself && Overlap(to, BytesAt(other.tensor.output, other.bytes));
      if (input || output) {
        return InvalidArgument("CONFLICT", std::string("memory.") + written.name + ".output", "",
                               std::string("overlaps ") + other.name + (input ? ".input" : ".output"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseMemory(const CallOptions& options) {
  if (options.inputs.empty() && options.outputs.empty()) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", options.inputs.empty() ? "outputs" : "inputs", "",
                         "a stream's tensors are in its messages");
}

absl::StatusOr<Destinations> DestinationsOf(const Message& response, const CallOptions& options,
                                            absl::FunctionRef<size_t(const v1::Tensor&)> bytes_of) {
  std::vector<const FieldDescriptor*> fields;
  for (int n = 0; n < response.GetDescriptor()->field_count(); ++n) {
    const FieldDescriptor* field = response.GetDescriptor()->field(n);
    if (field->message_type() == v1::Tensor::descriptor()) fields.push_back(field);
  }
  Destinations destinations;
  for (size_t n = 0; n < options.outputs.size(); ++n) {
    const absl::Span<std::byte> memory = options.outputs[n];
    if (memory.data() == nullptr) continue;
    if (n >= fields.size() || !response.GetReflection()->HasField(response, fields[n])) {
      return InvalidArgument("NOT_READ", Output(n), "", "the answer has no such tensor");
    }
    const auto& tensor = static_cast<const v1::Tensor&>(response.GetReflection()->GetMessage(response, fields[n]));
    if (const size_t bytes = bytes_of(tensor); bytes != memory.size()) {
      return InvalidArgument("MISMATCH", Output(n), Bytes(memory.size()),
                             absl::StrCat("the answer's ", fields[n]->name(), " has ", bytes));
    }
    destinations[&tensor] = memory.data();
  }
  return destinations;
}

}  // namespace posenc
