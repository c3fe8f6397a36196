#include "server/oip/infer_request.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/parse.h"
#include "server/core/refusal.h"
#include "server/oip/datatypes.h"
#include "server/oip/parameters.h"
#include "server/oip/settings.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;
using inference::ModelInferRequest;

constexpr char kRegion[] = "shared_memory_region", kOffset[] = "shared_memory_offset",
               kByteSize[] = "shared_memory_byte_size";

bool IsOfMemory(const std::string& name) { return name == kRegion || name == kOffset || name == kByteSize; }

// Returns CONFLICT for a part of a region without the region.
absl::Status CheckMemory(const std::string& tensor, const InferParameters& parameters) {
  if (parameters.contains(kRegion)) return absl::OkStatus();
  for (const char* part : {kOffset, kByteSize}) {
    if (!parameters.contains(part)) continue;
    return InvalidArgument("CONFLICT", absl::StrCat(tensor, ".", part), "",
                           absl::StrCat("must be absent without ", kRegion));
  }
  return absl::OkStatus();
}

// The part of shared memory that a tensor's parameters name.
absl::StatusOr<v1::Region> RegionOf(const std::string& tensor, const InferParameters& parameters,
                                    const InferContext& context) {
  if (context.scope.empty()) {
    return Refusal(absl::StatusCode::kPermissionDenied, "NOT_ALLOWED", absl::StrCat(tensor, ".", kRegion), "",
                   "must be absent: only callers on the server's host may use shared memory");
  }
  POSENC_ASSIGN_OR_RETURN(const std::string name, TextOf(tensor, parameters, kRegion));
  POSENC_ASSIGN_OR_RETURN(const int64_t offset, IntegerOf(tensor, parameters, kOffset));
  if (!parameters.contains(kByteSize)) {
    return InvalidArgument("MISSING", absl::StrCat(tensor, ".", kByteSize), "", "must be given with a region");
  }
  POSENC_ASSIGN_OR_RETURN(const int64_t byte_size, IntegerOf(tensor, parameters, kByteSize));
  auto region = context.memory.Part(context.scope, name, offset, byte_size);
  if (!region.ok()) return Within(tensor, region.status());
  return region;
}

// Gives the bytes of the tensors in a message that came as JSON to the payloads. The message has no regions.
void MoveBytes(const InferContext& context, Message* message) {
  if (message->GetDescriptor() == v1::Tensor::descriptor()) {
    auto* tensor = static_cast<v1::Tensor*>(message);
    tensor->set_data(context.add_bytes(std::move(*tensor->mutable_data())));
    return;
  }
  const auto& reflection = *message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      MoveBytes(context, reflection.MutableMessage(message, field));
      continue;
    }
    for (int n = 0; n < reflection.FieldSize(*message, field); ++n) {
      MoveBytes(context, reflection.MutableRepeatedMessage(message, field, n));
    }
  }
}

// Reads the parameter `settings`.
absl::Status ReadSettings(const ModelInferRequest& request, const Model& model, const InferContext& context,
                          Message* typed) {
  POSENC_ASSIGN_OR_RETURN(const std::string json, TextOf("", request.parameters(), kSettings));
  Message* settings = model.encoding->settings.Mutable(typed);
  POSENC_RETURN_IF_ERROR(ParseSettings(json, context.most_values, settings));
  MoveBytes(context, settings);
  return absl::OkStatus();
}

absl::Status ReadInput(const ModelInferRequest& request, int index, const InputField& field, int* raw,
                       const InferContext& context, Message* typed, bool* has_regions) {
  const auto& input = request.inputs(index);
  Message* const found = field.field.Mutable(typed);
  if (found == nullptr) {
    return InvalidArgument("CONFLICT", field.name, "", "must be absent: a parameter excludes it");
  }
  auto* tensor = static_cast<v1::Tensor*>(found);
  POSENC_ASSIGN_OR_RETURN(const v1::DataType dtype,
                          DataTypeOf(absl::StrCat(field.name, ".datatype"), input.datatype(), field.datatypes));
  tensor->set_dtype(dtype);
  RequireMemory(static_cast<int64_t>(input.shape_size() * sizeof(int64_t)));
  *tensor->mutable_shape() = input.shape();
  POSENC_RETURN_IF_ERROR(SetParameters(field.name, input.parameters(), field.parameters, IsOfMemory, typed));
  POSENC_RETURN_IF_ERROR(CheckMemory(field.name, input.parameters()));
  const bool in_region = input.parameters().contains(kRegion);
  if (input.has_contents() && (in_region || request.raw_input_contents_size() > 0)) {
    return InvalidArgument("CONFLICT", absl::StrCat(field.name, ".contents"), "",
                           in_region ? "must be absent with shared memory" : "must be absent with raw_input_contents");
  }
  if (in_region) {
    POSENC_ASSIGN_OR_RETURN(*tensor->mutable_region(), RegionOf(field.name, input.parameters(), context));
    *has_regions = true;
  } else if (input.has_contents()) {
    POSENC_ASSIGN_OR_RETURN(std::string bytes, BytesOf(field.name, dtype, input.contents()));
    tensor->set_data(context.add_bytes(std::move(bytes)));
  } else if (*raw < request.raw_input_contents_size()) {
    tensor->set_data(request.raw_input_contents((*raw)++));
  }
  return absl::OkStatus();
}

absl::Status ReadInputs(const ModelInferRequest& request, const Encoding& encoding, const InferContext& context,
                        Message* typed, bool* has_regions) {
  int beside_memory = 0;
  for (const auto& input : request.inputs()) beside_memory += input.parameters().contains(kRegion) ? 0 : 1;
  if (request.raw_input_contents_size() != 0 && request.raw_input_contents_size() != beside_memory) {
    return InvalidArgument(
        "MISMATCH", "raw_input_contents", absl::StrCat(request.raw_input_contents_size(), " entries"),
        absl::StrCat("must be ", beside_memory, ", one for each input that is not in shared memory"));
  }
  int raw = 0;
  std::vector<bool> seen(encoding.inputs.size());
  for (int n = 0; n < request.inputs_size(); ++n) {
    const std::string& name = request.inputs(n).name();
    const auto found = std::find_if(encoding.inputs.begin(), encoding.inputs.end(),
                                    [&](const InputField& field) { return field.name == name; });
    const std::string place = absl::StrCat("inputs[", n, "].name");
    if (found == encoding.inputs.end()) {
      std::string names;
      for (const InputField& field : encoding.inputs) absl::StrAppend(&names, names.empty() ? "" : ", ", field.name);
      return InvalidArgument("UNKNOWN_VALUE", place, name, "must be one of " + names);
    }
    const size_t which = found - encoding.inputs.begin();
    if (seen[which]) return InvalidArgument("CONFLICT", place, name, "must be given once");
    seen[which] = true;
    POSENC_RETURN_IF_ERROR(ReadInput(request, n, *found, &raw, context, typed, has_regions));
  }
  for (size_t n = 0; n < seen.size(); ++n) {
    const InputField& field = encoding.inputs[n];
    if (!seen[n] && !field.optional) return InvalidArgument("MISSING", field.name, "", "must be given: an input");
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const ModelInferRequest& request, const Encoding& encoding) {
  std::set<std::string_view> seen;
  for (int n = 0; n < request.outputs_size(); ++n) {
    const auto& output = request.outputs(n);
    const std::string place = absl::StrCat("outputs[", n, "].name");
    POSENC_RETURN_IF_ERROR(encoding.FindOutput(place, output.name()).status());
    if (!seen.insert(output.name()).second) {
      return InvalidArgument("CONFLICT", place, output.name(), "must be given once");
    }
    POSENC_RETURN_IF_ERROR(SetParameters(output.name(), output.parameters(), {}, IsOfMemory, nullptr));
    POSENC_RETURN_IF_ERROR(CheckMemory(output.name(), output.parameters()));
  }
  return absl::OkStatus();
}

// Positions of three axes are [axes, batch, tokens] in transformers; no tensor without axes has three dimensions.
void CompletePositions(Message* typed) {
  if (typed->GetDescriptor() != v1::ApplyRotaryRequest::descriptor()) return;
  auto* request = static_cast<v1::ApplyRotaryRequest*>(typed);
  if (!request->positions().has_ids()) return;
  v1::Positions& positions = *request->mutable_positions();
  constexpr int kWithAxes = 3;
  if (positions.ids().shape_size() == kWithAxes && positions.axis_dimension() == v1::AXIS_DIMENSION_UNSPECIFIED) {
    positions.set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  }
}

}  // namespace

absl::Status RejectUnknownFieldsOfTensors(const ModelInferRequest& request) {
  for (int n = 0; n < request.inputs_size(); ++n) {
    const std::string place = absl::StrCat("inputs[", n, "]");
    POSENC_RETURN_IF_ERROR(Within(place, wire::RejectUnknownFields(request.inputs(n))));
    POSENC_RETURN_IF_ERROR(Within(place + ".contents", wire::RejectUnknownFields(request.inputs(n).contents())));
  }
  for (int n = 0; n < request.outputs_size(); ++n) {
    POSENC_RETURN_IF_ERROR(Within(absl::StrCat("outputs[", n, "]"), wire::RejectUnknownFields(request.outputs(n))));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Model>> ModelOf(const Models& models, const std::string& name,
                                                     const std::string& version) {
  auto model = models.Find(name);
  if (model == nullptr) return NotFound("model_name", name, "must be a model that RepositoryIndex lists");
  if (!version.empty() && version != Models::kVersion) {
    const bool is_number = version.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return InvalidArgument("OUT_OF_RANGE", "model_version", version, "must be a number");
    return NotFound("model_version", version, absl::StrCat("must be absent or ", Models::kVersion));
  }
  if (model->ready()) return model;
  return Refusal(absl::StatusCode::kUnavailable, "MODEL_UNAVAILABLE", "model_name", name,
                 "must be a model that is ready: " + model->reason);
}

absl::Status ReadInferRequest(const ModelInferRequest& request, const Model& model, const InferContext& context,
                              Message* typed, bool* has_regions) {
  const Encoding& encoding = *model.encoding;
  if (model.file == nullptr) {
    POSENC_RETURN_IF_ERROR(ReadSettings(request, model, context, typed));
  } else {
    encoding.model.Mutable(typed)->CopyFrom(*model.file);
  }
  const auto is_settings = [&](const std::string& name) { return model.file == nullptr && name == kSettings; };
  POSENC_RETURN_IF_ERROR(SetParameters("", request.parameters(), encoding.parameters, is_settings, typed));
  POSENC_RETURN_IF_ERROR(ReadInputs(request, encoding, context, typed, has_regions));
  CompletePositions(typed);
  return CheckOutputs(request, encoding);
}

absl::Status PlaceOutputs(const ModelInferRequest& request, const Encoding& encoding, const InferContext& context,
                          const Message& response, const std::vector<wire::Output>& outputs, Message* typed,
                          bool* has_regions) {
  for (const auto& wanted : request.outputs()) {
    if (!wanted.parameters().contains(kRegion)) continue;
    POSENC_ASSIGN_OR_RETURN(const OutputField* field, encoding.FindOutput("outputs", wanted.name()));
    POSENC_ASSIGN_OR_RETURN(v1::Region region, RegionOf(wanted.name(), wanted.parameters(), context));
    for (const wire::Output& output : outputs) {
      if (field->field.Find(response) != output.tensor) continue;
      if (region.byte_size() < static_cast<int64_t>(output.bytes)) {
        return InvalidArgument("OUT_OF_RANGE", absl::StrCat(field->name, ".", kByteSize),
                               absl::StrCat(region.byte_size()),
                               absl::StrCat("must be at least ", output.bytes, ", the bytes of the output"));
      }
      region.set_byte_size(static_cast<int64_t>(output.bytes));
      field->region.Mutable(typed)->CopyFrom(region);
      *output.tensor->mutable_region() = region;
      *has_regions = true;
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::server
