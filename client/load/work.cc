#include "client/load/work.h"

#include <cstring>
#include <numeric>
#include <utility>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/random.h"
#include "client/tensor_header.h"
#include "posenc/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::load {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Method {
  const char* name;
  const Message* request;
  const Message* response;
  const Message* piece;  // of the answer as a stream; null: there is no such method
  absl::StatusOr<std::unique_ptr<Message>> (*run)(Backend&, const Message&, const CallOptions&);
  void (*complete)(const Entry&, int64_t offset, Message*);  // what the request lacks
};

namespace {

template <typename Request, typename Response,
          absl::StatusOr<Response> (Backend::*kMethod)(const Request&, const CallOptions&)>
absl::StatusOr<std::unique_ptr<Message>> Run(Backend& backend, const Message& request, const CallOptions& options) {
  POSENC_ASSIGN_OR_RETURN(Response response, (backend.*kMethod)(static_cast<const Request&>(request), options));
  return std::make_unique<Response>(std::move(response));
}

template <typename Request, void (*kComplete)(const Entry&, int64_t, Request*)>
void Complete(const Entry& entry, int64_t offset, Message* request) {
  kComplete(entry, offset, static_cast<Request*>(request));
}

v1::DataType DtypeOf(const Entry& entry) {
  v1::DataType dtype = v1::DATA_TYPE_UNSPECIFIED;
  return v1::DataType_Parse("DATA_TYPE_" + absl::AsciiStrToUpper(entry.dtype), &dtype) ? dtype
                                                                                       : v1::DATA_TYPE_UNSPECIFIED;
}

void PutOffset(int64_t offset, v1::Positions* positions) {
  if (positions->source_case() == v1::Positions::SOURCE_NOT_SET) positions->set_offset(offset);
}

// A plain rotary embedding as wide as the heads where the entry says nothing.
void PutRotary(const Entry& entry, v1::RotarySource* source) {
  if (!entry.config_json.empty()) {
    source->mutable_model()->set_config_json(entry.config_json);
  } else if (source->source_case() == v1::RotarySource::SOURCE_NOT_SET) {
    v1::RotarySettings& settings = *source->mutable_settings();
    settings.mutable_rope_parameters()->set_rope_type("default");
    settings.set_rotary_dim(entry.head_dim);
    settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  }
}

void CompleteRotary(const Entry& entry, int64_t offset, v1::ApplyRotaryRequest* request) {
  PutRotary(entry, request->mutable_rotary());
  PutOffset(offset, request->mutable_positions());
  if (request->layout() == v1::LAYOUT_UNSPECIFIED) request->set_layout(v1::LAYOUT_BSHD);
  const auto shape = [&](int64_t heads) -> std::vector<int64_t> {
    if (request->layout() == v1::LAYOUT_THD) return {entry.batch * entry.tokens, heads, entry.head_dim};
    if (request->layout() == v1::LAYOUT_BHSD) return {entry.batch, heads, entry.tokens, entry.head_dim};
    return {entry.batch, entry.tokens, heads, entry.head_dim};
  };
  const auto put = [&](int64_t heads, v1::Tensor* tensor) {
    tensor->set_dtype(DtypeOf(entry));
    for (const int64_t size : shape(heads)) tensor->add_shape(size);
  };
  put(entry.heads, request->mutable_q()->mutable_tensor());
  if (entry.key_heads > 0) put(entry.key_heads, request->mutable_k()->mutable_tensor());
}

void CompleteTable(const Entry& entry, int64_t offset, v1::GenerateTableRequest* request) {
  PutRotary(entry, request->mutable_rotary());
  PutOffset(offset, request->mutable_positions());
  if (request->positions().has_offset()) request->set_count(entry.tokens);
  request->set_dtype(DtypeOf(entry));
  if (request->form() == v1::TABLE_FORM_UNSPECIFIED) request->set_form(v1::TABLE_FORM_HALF_WIDTH);
}

void CompleteEmbedding(const Entry& entry, int64_t offset, v1::GenerateEmbeddingRequest* request) {
  if (request->method_case() == v1::GenerateEmbeddingRequest::METHOD_NOT_SET) {
    request->mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED);
    request->mutable_sinusoidal()->set_dim(entry.heads * entry.head_dim);
  }
  PutOffset(offset, request->mutable_positions());
  if (request->positions().has_offset()) request->set_count(entry.tokens);
  request->set_dtype(DtypeOf(entry));
}

void CompleteBias(const Entry& entry, int64_t offset, v1::GenerateBiasRequest* request) {
  if (!entry.config_json.empty()) {
    request->mutable_method()->mutable_model()->set_config_json(entry.config_json);
  } else if (request->method().method_case() == v1::BiasMethod::METHOD_NOT_SET) {
    v1::Alibi& alibi = *request->mutable_method()->mutable_alibi();
    alibi.set_num_heads(entry.heads);
    alibi.set_rule(v1::ALIBI_SLOPE_RULE_GEOMETRIC);
    alibi.set_form(v1::ALIBI_FORM_SYMMETRIC);
  }
  v1::BiasGeometry& geometry = *request->mutable_geometry();
  if (!geometry.has_query_length()) geometry.set_query_length(entry.tokens);
  if (!geometry.has_key_length()) geometry.set_key_length(entry.tokens);
  if (geometry.query_case() == v1::BiasGeometry::QUERY_NOT_SET) geometry.set_query_offset(offset);
  if (request->form() == v1::BIAS_FORM_UNSPECIFIED) request->set_form(v1::BIAS_FORM_DENSE);
  request->set_dtype(DtypeOf(entry));
}

const Method* FindMethod(const std::string& name) {
  static const Method kMethods[] = {
      {"ApplyRotary", &v1::ApplyRotaryRequest::default_instance(), &v1::ApplyRotaryResponse::default_instance(),
       &v1::StreamApplyRotaryResponse::default_instance(),
       &Run<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse, &Backend::ApplyRotary>,
       &Complete<v1::ApplyRotaryRequest, CompleteRotary>},
      {"GenerateTable", &v1::GenerateTableRequest::default_instance(), &v1::GenerateTableResponse::default_instance(),
       &v1::StreamTableResponse::default_instance(),
       &Run<v1::GenerateTableRequest, v1::GenerateTableResponse, &Backend::GenerateTable>,
       &Complete<v1::GenerateTableRequest, CompleteTable>},
      {"GenerateEmbedding", &v1::GenerateEmbeddingRequest::default_instance(),
       &v1::GenerateEmbeddingResponse::default_instance(), nullptr,
       &Run<v1::GenerateEmbeddingRequest, v1::GenerateEmbeddingResponse, &Backend::GenerateEmbedding>,
       &Complete<v1::GenerateEmbeddingRequest, CompleteEmbedding>},
      {"GenerateBias", &v1::GenerateBiasRequest::default_instance(), &v1::GenerateBiasResponse::default_instance(),
       &v1::StreamBiasResponse::default_instance(),
       &Run<v1::GenerateBiasRequest, v1::GenerateBiasResponse, &Backend::GenerateBias>,
       &Complete<v1::GenerateBiasRequest, CompleteBias>},
  };
  for (const Method& method : kMethods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

// Floating-point numbers of either sign, 0.5 .. 1.
std::vector<std::byte> Numbers(v1::DataType dtype, size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  const size_t element = ElementSize(dtype);
  const uint64_t one = dtype == v1::DATA_TYPE_FP16 ? 0x3800 : 0x3f00;  // 0.5, the mantissa's bits all 0
  const uint64_t mantissa = dtype == v1::DATA_TYPE_FP16 ? 0x03ff : 0x007f;
  for (size_t i = 0; element > 0 && i < bytes; i += element) {
    const uint64_t random = RandomAt(seed, i);
    const uint64_t upper = one | (random & (0x8000 | mantissa));
    const uint64_t value = element == 4 ? upper << 16 | random >> 48 : upper;
    std::memcpy(&data[i], &value, element);
  }
  return data;
}

absl::Status ParseRequest(const Entry& entry, Message* request) {
  if (entry.request_json.empty()) return absl::OkStatus();
  const auto status = google::protobuf::util::JsonStringToMessage(entry.request_json, request);
  if (status.ok()) return absl::OkStatus();
  return InvalidArgument("MALFORMED", "request", "", Quote(status.message().ToString(), 512));
}

std::vector<v1::Tensor*> InputsOf(Message* request) {
  std::vector<v1::Tensor*> tensors;
  if (auto* rotary = google::protobuf::DynamicCastToGenerated<v1::ApplyRotaryRequest>(request)) {
    tensors.push_back(rotary->mutable_q()->mutable_tensor());
    if (rotary->has_k()) tensors.push_back(rotary->mutable_k()->mutable_tensor());
  }
  return tensors;
}

}  // namespace

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
  work->method_ = FindMethod(entry.method);
  if (work->method_ == nullptr) {
    return named(InvalidArgument("UNKNOWN_VALUE", "method", entry.method,
                                 "must be ApplyRotary, GenerateTable, GenerateEmbedding or GenerateBias"));
  }
  if (entry.transport == Transport::kStream && work->method_->piece == nullptr) {
    return named(InvalidArgument("CONFLICT", "transport", "stream", entry.method + " has none"));
  }
  if (!entry.config_json.empty() && entry.method == "GenerateEmbedding") {
    return named(
        InvalidArgument("CONFLICT", "model", "", "GenerateEmbedding takes none: say what it needs in request"));
  }
  for (const int64_t offset : entry.offsets) {
    std::unique_ptr<Message> request(work->method_->request->New());
    if (const absl::Status status = ParseRequest(entry, request.get()); !status.ok()) return named(status);
    work->method_->complete(entry, offset, request.get());
    const bool first = work->requests_.empty();
    for (const v1::Tensor* tensor : InputsOf(request.get())) {
      if (!first) break;
      const absl::StatusOr<uint64_t> bytes =
          ByteSize({"", tensor->dtype(), {tensor->shape().begin(), tensor->shape().end()}});
      if (!bytes.ok()) return named(bytes.status());
      // Not the same numbers in each: q read in place of k must not pass.
      work->tensors_.push_back(Numbers(tensor->dtype(), *bytes, RandomAt(seed, work->tensors_.size())));
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

std::string Work::method() const {
  if (entry_.transport != Transport::kStream) return entry_.method;
  return entry_.method == "ApplyRotary" ? "StreamApplyRotary" : "Stream" + entry_.method.substr(strlen("Generate"));
}

std::unique_ptr<Message> Work::NewResponse() const {
  const bool stream = entry_.transport == Transport::kStream;
  return std::unique_ptr<Message>((stream ? method_->piece : method_->response)->New());
}

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
  return method_->run(here, *requests_[i], {.inputs = inputs(i)});
}

}  // namespace posenc::load
