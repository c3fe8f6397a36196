#include "server/oip/encodings.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kFloat[] = "FP32";  // metadata name one type; FP16 and BF16 are as good

// Builds an encoding from names of fields.
class Builder {
 public:
  Builder(std::string name, const google::protobuf::Descriptor* request, std::string_view model,
          std::string_view settings)
      : operation_(wire::LibraryOperations().UnaryOf(wire::RpcOf(*request))),
        encoding_{std::move(name), operation_, Of(model), Of(settings), {}, {}, {}} {}

  Builder& Input(std::string name, std::string datatype, std::vector<int64_t> shape, bool optional,
                 std::string_view field, std::vector<std::pair<std::string, std::string_view>> parameters = {}) {
    InputField input{std::move(name), std::move(datatype), std::move(shape), optional, Of(field)};
    for (auto& [parameter, path] : parameters) input.parameters.push_back({std::move(parameter), Of(path)});
    encoding_.inputs.push_back(std::move(input));
    return *this;
  }
  Builder& Output(std::string name, std::vector<int64_t> shape, std::string_view field, std::string_view region) {
    const FieldPath path(operation_.rpc.response.GetDescriptor(), field);
    encoding_.outputs.push_back({std::move(name), kFloat, std::move(shape), path, Of(region)});
    return *this;
  }
  Builder& Parameter(std::string name, std::string_view field) {
    encoding_.parameters.push_back({std::move(name), Of(field)});
    return *this;
  }
  // Parameters whose names are the fields'.
  Builder& Parameters(std::initializer_list<std::string_view> fields, std::string_view within = "") {
    for (const std::string_view field : fields) {
      Parameter(std::string(field), std::string(within).append(within.empty() ? "" : ".").append(field));
    }
    return *this;
  }
  // The parameters that choose what to read of a model's file.
  Builder& OfModel() {
    const std::string model = encoding_.model.text();
    return Parameters({"component", "layer_type", "layer_index"}, model);
  }
  Builder& Positions(std::string datatype, std::vector<int64_t> shape) {
    Input("position_ids", std::move(datatype), std::move(shape), true, "positions.ids");
    return Parameters({"offset", "axis_dimension", "scaling_length_rule", "seq_len"}, "positions");
  }
  Builder& PrecisionAndDevice() {
    Parameter("precision", "precision.preset").Parameter("device", "hints.device");
    return Parameters({"frequencies", "table_dtype", "rounding"}, "precision.axes");
  }
  Builder& Bias() {
    Input("table", kFloat, {-1, -1}, true, "method.table")
        .Input("query_positions", "INT64", {-1}, true, "geometry.query_positions");
    Input("key_positions", "INT64", {-1}, true, "geometry.key_positions");
    Input("position_mask", "BOOL", {-1, -1}, true, "method.position_mask");
    Input("key_valid", "BOOL", {-1, -1}, true, "mask.key_valid");
    Input("query_documents", "INT64", {-1}, true, "mask.query_documents");
    Input("key_documents", "INT64", {-1}, true, "mask.key_documents").Parameter("table_layout", "method.table_layout");
    Parameters({"query_length", "key_length", "query_offset", "head_start", "head_count"}, "geometry");
    return Parameters(
        {"causal", "window_left", "window_right", "fill_kind", "fill_value", "fully_masked_row", "prefix_length"},
        "mask");
  }

  Encoding Done() { return std::move(encoding_); }

 private:
  FieldPath Of(std::string_view text) const { return {operation_.rpc.request.GetDescriptor(), text}; }

  const wire::UnaryOperation& operation_;
  Encoding encoding_;
};

Encoding Rotary() {
  const std::vector<int64_t> shape = {-1, -1, -1, -1};
  return Builder("rotary", v1::ApplyRotaryRequest::descriptor(), "rotary.model", "rotary.settings")
      .Input("q", kFloat, shape, false, "q.tensor",
             {{"rotary_offset", "q.rotary_offset"}, {"rotates_first", "q.rotates_first"}})
      .Input("k", kFloat, shape, true, "k.tensor",
             {{"rotary_offset", "k.rotary_offset"}, {"rotates_first", "k.rotates_first"}})
      .Positions("INT64", {-1, -1})
      .Output("q", shape, "q", "q.output")
      .Output("k", shape, "k", "k.output")
      .Parameters({"layout", "direction"})
      .Parameters({"input_pairing", "output_pairing"}, "rotary.model")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding Table() {
  return Builder("table", v1::GenerateTableRequest::descriptor(), "rotary.model", "rotary.settings")
      .Positions("INT64", {-1})
      .Output("cos", {-1, -1}, "cos", "cos_output")
      .Output("sin", {-1, -1}, "sin", "sin_output")
      .Parameters({"count", "dtype", "form", "operand"})
      .Parameters({"input_pairing", "output_pairing"}, "rotary.model")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding Bias() {
  return Builder("bias", v1::GenerateBiasRequest::descriptor(), "method.model", "method")
      .Bias()
      .Output("bias", {-1, -1, -1}, "bias", "output")
      .Parameters({"form", "dtype"})
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding AddBias() {
  const std::vector<int64_t> shape = {-1, -1, -1, -1};
  return Builder("add_bias", v1::AddBiasRequest::descriptor(), "method.model", "method")
      .Input("scores", kFloat, shape, false, "scores")
      .Bias()
      .Output("scores", shape, "scores", "output")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Builder Embedding(std::string_view model) {
  Builder builder("embedding", v1::GenerateEmbeddingRequest::descriptor(), model, "");
  builder.Positions("INT64", {-1}).Input("add_to", kFloat, {-1, -1, -1}, true, "add_to");
  builder.Output("embedding", {-1, -1}, "embedding", "output").Parameters({"count", "dtype"}).PrecisionAndDevice();
  if (!model.empty()) builder.OfModel();
  return builder;
}

Encodings MakeEncodings() {
  return {
      .rotary = Rotary(),
      .table = Table(),
      .bias = Bias(),
      .add_bias = AddBias(),
      .sinusoidal =
          Embedding("sinusoidal.model").Input("token_valid", "BOOL", {-1, -1}, true, "sinusoidal.token_valid").Done(),
      .grid = Embedding("grid.model").Parameters({"height", "width", "frames"}, "grid").Done(),
      .learned = Embedding("learned.model")
                     .Input("table", kFloat, {-1, -1}, false, "learned.table")
                     .Input("token_valid", "BOOL", {-1, -1}, true, "learned.token_valid")
                     .Done(),
      .embedding = Embedding("").Done()};
}

// Replaces the beginning of a field's path if it is `path`. Returns true if it did.
bool Replace(const FieldPath& path, const std::string& name, std::string* field) {
  const std::string& text = path.text();
  if (text.empty() || !field->starts_with(text)) return false;
  if (field->size() > text.size() && (*field)[text.size()] != '.' && (*field)[text.size()] != '[') return false;
  field->replace(0, text.size(), name);
  return true;
}

}  // namespace

FieldPath::FieldPath(const google::protobuf::Descriptor* type, std::string_view text) : text_(text) {
  if (text.empty()) return;
  for (const auto name : absl::StrSplit(text_, '.')) {
    const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByName(std::string(name));
    if (field == nullptr) std::abort();
    fields_.push_back(field);
    type = field->message_type();
  }
}

Message* FieldPath::MutableParent(Message* root) const {
  for (const FieldDescriptor* field : fields_) {
    const auto& reflection = *root->GetReflection();
    const auto* oneof = field->real_containing_oneof();
    if (oneof != nullptr && reflection.HasOneof(*root, oneof) && !reflection.HasField(*root, field)) return nullptr;
    if (field != fields_.back()) root = reflection.MutableMessage(root, field);
  }
  return root;
}

Message* FieldPath::Mutable(Message* root) const {
  if (empty()) return root;
  Message* const parent = MutableParent(root);
  return parent == nullptr ? nullptr : parent->GetReflection()->MutableMessage(parent, fields_.back());
}

const Message* FieldPath::Find(const Message& root) const {
  const Message* message = &root;
  for (const FieldDescriptor* field : fields_) {
    const auto& reflection = *message->GetReflection();
    if (!reflection.HasField(*message, field)) return nullptr;
    message = &reflection.GetMessage(*message, field);
  }
  return message;
}

absl::StatusOr<const OutputField*> Encoding::FindOutput(const std::string& place, const std::string& output) const {
  std::string names;
  for (const OutputField& field : outputs) {
    if (field.name == output) return &field;
    names += (names.empty() ? "" : ", ") + field.name;
  }
  return InvalidArgument("UNKNOWN_VALUE", place, output, "must be one of " + names);
}

absl::Status Encoding::Renamed(const absl::Status& status) const {
  return posenc::Renamed(status, [this](std::string field) {
    for (const InputField& input : inputs) {
      for (const ParameterField& parameter : input.parameters) {
        if (Replace(parameter.field, input.name + "." + parameter.name, &field)) return field;
      }
      if (Replace(input.field, input.name, &field)) return field;
    }
    for (const OutputField& output : outputs) {
      if (Replace(output.region, output.name, &field)) return field;
    }
    for (const ParameterField& parameter : parameters) {
      if (Replace(parameter.field, parameter.name, &field)) return field;
    }
    return field;
  });
}

const Encodings& AllEncodings() {
  static const auto* const encodings = new Encodings(MakeEncodings());
  return *encodings;
}

}  // namespace posenc::server
