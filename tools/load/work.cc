#include "tools/load/work.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/files/json.h"
#include "tools/files/random.h"
#include "tools/files/tensor_header.h"
#include "tools/load/methods.h"

namespace posenc::load {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

namespace {

absl::Status ParseRequest(const Entry& entry, Message* request) {
  if (entry.request_json.empty()) return absl::OkStatus();
  const absl::Status status = FromJson(entry.request_json, request);
  return status.ok() ? status : InvalidArgument("MALFORMED", "request", "", std::string(status.message()));
}

}  // namespace

std::vector<std::byte> RandomNumbers(v1::DataType dtype, size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  const size_t element = ElementSize(dtype);
  const uint64_t one = dtype == v1::DATA_TYPE_FP16 ? 0x3800 : 0x3f00;  // 0.5 with an all-zero mantissa
  const uint64_t mantissa = dtype == v1::DATA_TYPE_FP16 ? 0x03ff : 0x007f;
  for (size_t i = 0; element > 0 && i < bytes; i += element) {
    const uint64_t random = RandomAt(seed, i);
    const uint64_t upper = one | (random & (0x8000 | mantissa));
    const uint64_t value = element == 4 ? upper << 16 | random >> 48 : upper;
    std::memcpy(&data[i], &value, element);
  }
  return data;
}

std::vector<std::pair<std::string, const v1::Tensor*>> TensorsOf(const Message& message) {
  std::vector<std::pair<std::string, const v1::Tensor*>> tensors;
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() != v1::Tensor::descriptor() || field->is_repeated()) continue;
    tensors.emplace_back(field->name(),
                         static_cast<const v1::Tensor*>(&message.GetReflection()->GetMessage(message, field)));
  }
  return tensors;
}

absl::StatusOr<std::shared_ptr<const Work>> Work::Create(const Entry& entry, uint64_t seed, Backend& here) {
  const auto named = [&](const absl::Status& status) { return Within(Quote(entry.name), status); };
  std::shared_ptr<Work> work(new Work);
  work->entry_ = entry;
  const absl::StatusOr<const Method*> method = FindMethod(entry.method);
  if (!method.ok()) return named(method.status());
  work->method_ = *method;
  if (entry.transport == Transport::kStream && work->method_->stream == nullptr) {
    return named(InvalidArgument("CONFLICT", "transport", "stream", entry.method + " has none"));
  }
  if (entry.has_model() && !work->method_->takes_model) {
    return named(InvalidArgument("CONFLICT", "model", "", entry.method + " takes none: say in request what it needs"));
  }
  for (const int64_t offset : entry.offsets) {
    std::unique_ptr<Message> request(work->method_->rpc.request.New());
    if (const absl::Status status = ParseRequest(entry, request.get()); !status.ok()) return named(status);
    work->method_->complete(entry, offset, request.get());
    const bool first = work->requests_.empty();
    for (const v1::Tensor* tensor : InputsOf(request.get())) {
      if (!first) break;
      const absl::StatusOr<uint64_t> bytes =
          ByteSize({"", tensor->dtype(), {tensor->shape().begin(), tensor->shape().end()}});
      if (!bytes.ok()) return named(bytes.status());
      // Each tensor has its own numbers, so that a server that reads q in place of k is detected.
      work->tensors_.push_back(RandomNumbers(tensor->dtype(), *bytes, RandomAt(seed, work->tensors_.size())));
    }
    work->requests_.push_back(std::move(request));
  }
  const absl::StatusOr<std::unique_ptr<Message>> answer = work->Compute(here, 0);
  if (!answer.ok()) return named(answer.status());
  for (const auto& [name, tensor] : TensorsOf(**answer)) {
    work->answer_.push_back(
        {name, tensor->dtype(), {tensor->shape().begin(), tensor->shape().end()}, tensor->data().size()});
  }
  return work;
}

const wire::RpcDescription& Work::rpc() const {
  return entry_.transport == Transport::kStream ? *method_->stream : method_->rpc;
}

std::unique_ptr<Message> Work::NewResponse() const { return std::unique_ptr<Message>(rpc().response.New()); }

std::vector<wire::TensorView> Work::inputs(size_t i) const {
  std::vector<wire::TensorView> views;
  for (const v1::Tensor* tensor : InputsOf(requests_[i].get())) views.push_back({tensor, tensors_[views.size()]});
  return views;
}

int64_t Work::request_bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_) bytes += static_cast<int64_t>(tensor.size());
  return bytes;
}

int64_t Work::answer_bytes() const {
  int64_t bytes = 0;
  for (const AnswerTensor& tensor : answer_) bytes += static_cast<int64_t>(tensor.bytes);
  return bytes;
}

absl::StatusOr<std::unique_ptr<Message>> Work::Compute(Backend& here, size_t i) const {
  return here.CallUnary(*requests_[i], {.inputs = inputs(i)});
}

}  // namespace posenc::load
