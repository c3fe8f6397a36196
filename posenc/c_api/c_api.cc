#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "posenc/c_api/posenc.h"
#include "posenc/in_process/in_process.h"
#include "posenc/wire/model_file.h"
#include "posenc/wire/rpcs.h"

struct posenc_context {
  posenc::InProcess service;
};

struct posenc_stream {
  std::unique_ptr<posenc::InProcess::Stream> stream;
  bool takes_chunks;
};

namespace posenc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the part of a caller's struct that both sides know; the rest is zero.
template <typename Struct>
Struct Known(const Struct& given) {
  Struct known = {};
  std::memcpy(&known, &given, std::min(given.struct_size, sizeof(known)));
  return known;
}

// An answer with everything that its C struct points to.
class Answer : public posenc_answer {
 public:
  Answer() : posenc_answer{.struct_size = sizeof(posenc_answer)} {}

  static const posenc_answer* Failed(const absl::Status& status) {
    auto answer = std::make_unique<Answer>();
    answer->text_ = std::string(status.message());
    answer->details_ = DetailsOf(status);
    const ErrorDetails& details = answer->details_;
    answer->error_ = {sizeof(posenc_error_details), answer->text_.c_str(), details.reason.c_str(),
                      details.field.c_str(),        details.value.c_str(), details.limit.c_str(),
                      details.other_field.c_str(),  details.line.c_str(),  details.column.c_str()};
    answer->code = static_cast<int32_t>(status.code());  // absl and gRPC use the same numbers
    answer->error = &answer->error_;
    return answer.release();
  }

  // Takes the response's own tensors out of it; those in `outputs` have no data in it already.
  static const posenc_answer* Of(std::unique_ptr<Message> response, const std::vector<absl::Span<std::byte>>& outputs) {
    auto answer = std::make_unique<Answer>();
    const auto& reflection = *response->GetReflection();
    for (int n = 0; n < response->GetDescriptor()->field_count(); ++n) {
      const FieldDescriptor* field = response->GetDescriptor()->field(n);
      if (field->message_type() != v1::Tensor::descriptor() || field->is_repeated()) continue;
      const size_t index = answer->tensors_.size();
      posenc_output& tensor = answer->tensors_.emplace_back(posenc_output{nullptr, 0});
      if (!reflection.HasField(*response, field)) continue;
      if (index < outputs.size() && outputs[index].data() != nullptr) {
        tensor = {outputs[index].data(), outputs[index].size()};
        continue;
      }
      auto& message = static_cast<v1::Tensor&>(*reflection.MutableMessage(response.get(), field));
      auto& data = answer->data_.emplace_back(message.release_data());
      if (data == nullptr) data = std::make_unique<std::string>();
      tensor = {data->data(), data->size()};
    }
    if (!response->SerializeToString(&answer->text_)) {
      return Failed(TooLarge("response", "", "must be at most 2147483647 bytes besides its tensors"));
    }
    answer->message = answer->text_.data();
    answer->message_size = answer->text_.size();
    answer->tensors = answer->tensors_.data();
    answer->tensor_count = answer->tensors_.size();
    return answer.release();
  }

  static const posenc_answer* WithoutMessage() { return std::make_unique<Answer>().release(); }

  static void Free(const posenc_answer* answer) { delete static_cast<const Answer*>(answer); }

 private:
  posenc_error_details error_ = {};
  ErrorDetails details_;
  std::string text_;  // the response, or the error's message
  std::vector<posenc_output> tensors_;
  std::vector<std::unique_ptr<std::string>> data_;
};

// Returns the tensor or the tensor's chunk at a path of fields, or null if the request has none there.
const Message* TensorAt(const Message& request, std::string_view path) {
  const Message* message = &request;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name(path.substr(begin, end - begin));
    begin = end + 1;
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr || field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      return nullptr;
    if (!message->GetReflection()->HasField(*message, field)) return nullptr;
    message = &message->GetReflection()->GetMessage(*message, field);
  }
  const bool has_data =
      message->GetDescriptor() == v1::Tensor::descriptor() || message->GetDescriptor() == v1::TensorChunk::descriptor();
  return has_data ? message : nullptr;
}

// Returns INVALID_ARGUMENT if a size is given without memory. `size` counts bytes or elements.
absl::Status CheckGiven(std::string_view field, const void* memory, size_t size) {
  if (memory != nullptr || size == 0) return absl::OkStatus();
  return InvalidArgument("MISSING", field, "NULL", absl::StrCat("must be given: its size is ", size));
}

absl::StatusOr<std::vector<wire::TensorView>> InputsOf(const posenc_call& call, const Message& request) {
  POSENC_RETURN_IF_ERROR(CheckGiven("inputs", call.inputs, call.input_count));
  std::vector<wire::TensorView> inputs;
  for (size_t n = 0; n < call.input_count; ++n) {
    const posenc_input& input = call.inputs[n];
    POSENC_RETURN_IF_ERROR(CheckGiven(absl::StrCat("inputs[", n, "].data"), input.data, input.size));
    const std::string_view path = input.tensor == nullptr ? "" : input.tensor;
    const Message* tensor = TensorAt(request, path);
    if (tensor == nullptr) {
      return InvalidArgument("NOT_READ", absl::StrCat("inputs[", n, "].tensor"), path,
                             "must be the path of a tensor of the request");
    }
    inputs.push_back({tensor, {static_cast<const std::byte*>(input.data), input.size}});
  }
  return inputs;
}

absl::StatusOr<std::vector<absl::Span<std::byte>>> OutputsOf(const posenc_call& call) {
  POSENC_RETURN_IF_ERROR(CheckGiven("outputs", call.outputs, call.output_count));
  std::vector<absl::Span<std::byte>> outputs;
  for (size_t n = 0; n < call.output_count; ++n) {
    outputs.push_back({static_cast<std::byte*>(call.outputs[n].data), call.outputs[n].size});
  }
  return outputs;
}

absl::StatusOr<CallOptions> OptionsOf(const posenc_call& call, const Message& request) {
  CallOptions options;
  if (call.timeout_ns < 0) {
    return InvalidArgument("OUT_OF_RANGE", "timeout_ns", absl::StrCat(call.timeout_ns), "must be 0 or more");
  }
  if (call.timeout_ns > 0) options.timeout = std::chrono::nanoseconds(call.timeout_ns);
  POSENC_ASSIGN_OR_RETURN(options.inputs, InputsOf(call, request));
  POSENC_ASSIGN_OR_RETURN(options.outputs, OutputsOf(call));
  return options;
}

absl::Status Parse(const posenc_call& call, Message* request) {
  constexpr size_t kMost = 2147483647;
  POSENC_RETURN_IF_ERROR(CheckGiven("request", call.request, call.request_size));
  if (call.request_size > kMost) return TooLarge("request", absl::StrCat(call.request_size), "must be below 2 GiB");
  if (request->ParseFromArray(call.request, static_cast<int>(call.request_size))) return absl::OkStatus();
  return InvalidArgument("MALFORMED", kWholeRequest, "",
                         absl::StrCat("must be a ", request->GetDescriptor()->full_name()));
}

// Returns the RPC that a call names, which must be a stream or must not.
absl::StatusOr<const wire::RpcDescription*> RpcOf(const posenc_call& call, bool stream) {
  const std::string_view name = call.rpc == nullptr ? "" : call.rpc;
  const wire::RpcDescription* rpc = wire::FindRpc(name);
  if (rpc != nullptr && name.starts_with("Stream") == stream) return rpc;
  const std::string limit = stream ? "must be a streaming RPC" : "must be a unary RPC";
  return Restore(absl::StatusCode::kUnimplemented, absl::StrCat("rpc: is ", Quote(name), "; ", limit),
                 {.reason = "UNSUPPORTED", .field = "rpc", .value = Quote(name), .limit = limit});
}

absl::StatusOr<const posenc_answer*> Run(Backend& service, const posenc_call& call) {
  POSENC_ASSIGN_OR_RETURN(const wire::RpcDescription* rpc, RpcOf(call, /*stream=*/false));
  const std::unique_ptr<Message> request(rpc->request.New());
  POSENC_RETURN_IF_ERROR(Parse(call, request.get()));
  POSENC_ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call, *request));
  POSENC_ASSIGN_OR_RETURN(auto response, service.CallUnary(*request, options));
  return Answer::Of(std::move(response), options.outputs);
}

absl::StatusOr<const posenc_answer*> Open(InProcess& service, const posenc_call& call, posenc_stream** stream) {
  POSENC_ASSIGN_OR_RETURN(const wire::RpcDescription* rpc, RpcOf(call, /*stream=*/true));
  if (call.output_count > 0) return InvalidArgument("NOT_READ", "outputs", "", "must be empty: each tile has its own");
  const std::unique_ptr<Message> request(rpc->request.New());
  POSENC_RETURN_IF_ERROR(Parse(call, request.get()));
  POSENC_ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call, *request));
  POSENC_ASSIGN_OR_RETURN(auto opened, service.Open(*request, options));
  auto result = std::make_unique<posenc_stream>(std::move(opened),
                                                request->GetDescriptor() == v1::StreamApplyRotaryRequest::descriptor());
  const posenc_answer* answer = Answer::WithoutMessage();
  *stream = result.release();
  return answer;
}

absl::StatusOr<const posenc_answer*> Next(const posenc_stream& stream, const posenc_call* part) {
  v1::StreamApplyRotaryRequest chunk;
  CallOptions options;
  const bool has_chunk = part != nullptr && stream.takes_chunks;
  if (has_chunk) {
    POSENC_RETURN_IF_ERROR(Parse(*part, &chunk));
    POSENC_ASSIGN_OR_RETURN(options.inputs, InputsOf(*part, chunk));
  }
  if (part != nullptr) {
    POSENC_ASSIGN_OR_RETURN(options.outputs, OutputsOf(*part));
  }
  POSENC_ASSIGN_OR_RETURN(auto response, stream.stream->Next(has_chunk ? &chunk : nullptr, options));
  return response == nullptr ? Answer::WithoutMessage() : Answer::Of(std::move(response), options.outputs);
}

absl::StatusOr<const posenc_answer*> ReadModel(const char* path) {
  POSENC_ASSIGN_OR_RETURN(v1::ModelConfig model, ReadModelFile(path));
  return Answer::Of(std::make_unique<v1::ModelConfig>(std::move(model)), {});
}

// Calls `work` and makes an answer of its errors. Returns null only if memory is lacking even for an error.
template <typename Work>
const posenc_answer* Answered(Work&& work) try {
  try {
    const absl::StatusOr<const posenc_answer*> answer = work();
    return answer.ok() ? *answer : Answer::Failed(answer.status());
  } catch (const std::bad_alloc&) {
    return Answer::Failed(TooLarge("request", "", "must fit the memory of this process"));
  } catch (const std::exception& error) {
    return Answer::Failed(absl::InternalError(error.what()));
  }
} catch (...) {
  return nullptr;
}

}  // namespace
}  // namespace posenc

uint32_t posenc_abi_version(void) { return POSENC_ABI_VERSION; }

const char* posenc_version(void) { return posenc::kVersion; }

posenc_context* posenc_create(const posenc_options* options) try {
  posenc::InProcessOptions chosen = posenc::WholeMachine();
  if (options != nullptr) {
    const posenc_options known = posenc::Known(*options);
    if (known.max_request_bytes < 0 || known.max_output_bytes < 0) return nullptr;
    chosen.threads = known.threads;
    if (known.max_request_bytes > 0) chosen.limits.max_request_bytes = known.max_request_bytes;
    if (known.max_output_bytes > 0) chosen.limits.max_output_bytes = known.max_output_bytes;
  }
  return new posenc_context{posenc::InProcess(chosen)};
} catch (...) {
  return nullptr;
}

void posenc_destroy(posenc_context* context) { delete context; }

const posenc_answer* posenc_run(posenc_context* context, const posenc_call* call) {
  return posenc::Answered([&] {
    const posenc_call known = posenc::Known(*call);
    const posenc::Cancellation cancelled = [flag = known.cancelled]() -> absl::Status {
      if (flag == nullptr || __atomic_load_n(flag, __ATOMIC_RELAXED) == 0) return absl::OkStatus();
      return absl::CancelledError("the call was cancelled");
    };
    return posenc::RunInterruptibly(cancelled, [&]() -> absl::StatusOr<const posenc_answer*> {
      posenc::InterruptionPoint();  // small calls have no other
      return posenc::Run(context->service, known);
    });
  });
}

void posenc_free(const posenc_answer* answer) { posenc::Answer::Free(answer); }

const posenc_answer* posenc_open(posenc_context* context, const posenc_call* call, posenc_stream** stream) {
  *stream = nullptr;
  return posenc::Answered([&] { return posenc::Open(context->service, posenc::Known(*call), stream); });
}

const posenc_answer* posenc_next(posenc_stream* stream, const posenc_call* part) {
  return posenc::Answered([&] {
    if (part == nullptr) return posenc::Next(*stream, nullptr);
    const posenc_call known = posenc::Known(*part);
    return posenc::Next(*stream, &known);
  });
}

void posenc_close(posenc_stream* stream) { delete stream; }

const posenc_answer* posenc_read_model(const char* path) {
  return posenc::Answered([&] { return posenc::ReadModel(path); });
}
