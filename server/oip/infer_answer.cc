#include "server/oip/infer_answer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/v1/info.pb.h"
#include "server/oip/datatypes.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

constexpr char kFinal[] = "triton_final_response";
constexpr char kAsksForFinal[] = "triton_enable_empty_final_response";

// Says what was used, as far as it is not a setting of the model.
void WriteInfo(const Message& answer, ModelInferResponse* response) {
  const auto* field = answer.GetDescriptor()->FindFieldByName("info");
  const auto& info = static_cast<const v1::AnswerInfo&>(answer.GetReflection()->GetMessage(answer, field));
  auto& parameters = *response->mutable_parameters();
  parameters["device"].set_string_param(info.device().empty() ? "cpu" : info.device());
  parameters["numerics_version"].set_int64_param(info.numerics_version());
  const std::string& fingerprint = info.plan_fingerprint();
  if (!fingerprint.empty()) parameters["plan_fingerprint"].set_string_param(absl::BytesToHexString(fingerprint));
}

// The outputs in the order in which the response has them.
absl::StatusOr<std::vector<std::pair<const OutputField*, const wire::Output*>>> Wanted(
    const ModelInferRequest& request, const Encoding& encoding, const Message& answer,
    const std::vector<wire::Output>& outputs) {
  std::vector<std::pair<const OutputField*, const wire::Output*>> wanted;
  const auto find = [&](const OutputField& field) -> const wire::Output* {
    for (const wire::Output& output : outputs) {
      if (field.field.Find(answer) == output.tensor) return &output;
    }
    return nullptr;
  };
  for (int n = 0; n < request.outputs_size(); ++n) {
    const std::string place = absl::StrCat("outputs[", n, "].name");
    POSENC_ASSIGN_OR_RETURN(const OutputField* field, encoding.FindOutput(place, request.outputs(n).name()));
    if (const wire::Output* output = find(*field); output != nullptr) wanted.emplace_back(field, output);
  }
  if (!wanted.empty()) return wanted;
  if (request.outputs_size() > 0) {
    return InvalidArgument("CONFLICT", "outputs", request.outputs(0).name(),
                           "must have an output whose input the request has");
  }
  for (const OutputField& field : encoding.outputs) {
    if (const wire::Output* output = find(field); output != nullptr) wanted.emplace_back(&field, output);
  }
  return wanted;
}

}  // namespace

std::string Delimited(int number, size_t length) {
  using google::protobuf::io::CodedOutputStream;
  constexpr size_t kVarint = 10;
  std::array<uint8_t, 2 * kVarint> bytes;
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(number) << 3 | 2, bytes.data());
  end = CodedOutputStream::WriteVarint64ToArray(length, end);
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(end - bytes.data())};
}

absl::StatusOr<wire::Answer> LayOutInfer(const ModelInferRequest& request, const Model& model, const Message& answer,
                                         const std::vector<wire::Output>& outputs, InferRpc rpc) {
  POSENC_ASSIGN_OR_RETURN(const auto wanted, Wanted(request, *model.encoding, answer, outputs));
  ModelInferResponse response;
  response.set_model_name(model.name);
  response.set_model_version(Models::kVersion);
  WriteInfo(answer, &response);
  const auto asked = request.parameters().find(kAsksForFinal);
  if (rpc == InferRpc::kInStream && asked != request.parameters().end() && asked->second.bool_param()) {
    (*response.mutable_parameters())[kFinal].set_bool_param(true);
  }
  for (const auto& [field, output] : wanted) {
    auto& tensor = *response.add_outputs();
    tensor.set_name(field->name);
    tensor.set_datatype(NameOf(output->tensor->dtype()));
    *tensor.mutable_shape() = output->tensor->shape();
  }
  std::vector<wire::Answer::Piece> pieces;
  std::string header = response.SerializeAsString();
  for (const auto& [field, output] : wanted) {
    const size_t bytes = output->region() == nullptr ? output->bytes : 0;
    header += Delimited(ModelInferResponse::kRawOutputContentsFieldNumber, bytes);
    pieces.push_back({std::exchange(header, {}), output});
  }
  return wire::Answer::OfPieces(std::move(pieces), outputs);
}

std::string TakeId(std::string* request) {
  const LargeBlocksMayBeRefused scope;
  using google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kTag = ModelInferRequest::kIdFieldNumber << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(request->data()),
                                               static_cast<int>(request->size()));
  std::string id, rest;
  for (;;) {
    const int begin = input.CurrentPosition();
    const uint32_t tag = input.ReadTag();
    if (tag == 0) break;
    uint32_t length = 0;
    const bool read = tag == kTag ? input.ReadVarint32(&length) && input.ReadString(&id, static_cast<int>(length))
                                  : WireFormatLite::SkipField(&input, tag);
    if (!read) return "";  // malformed: protobuf says so
    if (tag != kTag) rest.append(*request, begin, input.CurrentPosition() - begin);
  }
  const bool printable = std::all_of(id.begin(), id.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!input.ConsumedEntireMessage() || id.empty() || id.size() > kMostIdBytes || !printable) return "";
  *request = std::move(rest);
  return id;
}

wire::Answer WithId(const wire::Answer& response, const std::string& id) {
  return id.empty() ? response : response.Behind(Delimited(ModelInferResponse::kIdFieldNumber, id.size()) + id);
}

wire::Answer WithIdInStream(const wire::Answer& response, const std::string& id) {
  const wire::Answer inner = WithId(response, id);
  return inner.Behind(Delimited(ModelStreamInferResponse::kInferResponseFieldNumber, inner.size()));
}

}  // namespace posenc::server
