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

constexpr char kFloat[] = "FP32";
using Datatypes = std::initializer_list<const char*>;
constexpr Datatypes kFloats = {kFloat, "FP16", "BF16"}, kTables = {kFloat, "FP16", "BF16", "FP64"},
                    kIntegers = {"INT64", "INT32"}, kPositions = {"INT64", "INT32", "FP32", "FP64"}, kFlags = {"BOOL"};
constexpr std::initializer_list<v1::DataType> kFloatTypes = {v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16,
                                                             v1::DATA_TYPE_FP64};

// Builds an encoding from names of fields.
class Builder {
 public:
  Builder(std::string name, const google::protobuf::Descriptor* request, std::string_view model,
          std::string_view settings)
      : operation_(wire::LibraryOperations().UnaryOf(wire::RpcOf(*request))),
        encoding_{std::move(name), operation_, Of(model), Of(settings), {}, {}, {}} {}

  Builder& Input(std::string name, Datatypes datatypes, std::vector<int64_t> shape, bool optional,
                 std::string_view field, const std::vector<std::pair<std::string, std::string_view>>& parameters = {}) {
    InputField input{std::move(name), {datatypes.begin(), datatypes.end()}, std::move(shape), optional, Of(field)};
    for (const auto& [parameter, path] : parameters) input.parameters.push_back({parameter, Of(path)});
    encoding_.inputs.push_back(std::move(input));
    return *this;
  }
  Builder& Output(std::string name, std::vector<int64_t> shape, std::string_view field, std::string_view region) {
    const FieldPath path(operation_.rpc.response.GetDescriptor(), field);
    encoding_.outputs.push_back({std::move(name), kFloat, std::move(shape), path, Of(region)});
    return *this;
  }
  Builder& Parameter(std::string name, std::string_view field, std::vector<int> values = {}) {
    encoding_.parameters.push_back({std::move(name), Of(field), std::move(values)});
    return *this;
  }
  // The type of the output.
  Builder& OutputType(std::initializer_list<v1::DataType> types) {
    return Parameter("dtype", "dtype", {types.begin(), types.end()});
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
  Builder& Positions(std::vector<int64_t> shape) {
    Input("position_ids", kPositions, std::move(shape), true, "positions.ids");
    return Parameters({"offset", "axis_dimension", "scaling_length_rule", "seq_len"}, "positions");
  }
  Builder& PrecisionAndDevice() {
    Parameter("precision", "precision.preset").Parameter("device", "hints.device");
    return Parameters({"frequencies", "table_dtype", "rounding"}, "precision.axes");
  }
  Builder& Bias() {
    Input("table", kFloats, {-1, -1}, true, "method.table")
        .Input("query_positions", kPositions, {-1}, true, "geometry.query_positions");
    Input("key_positions", kPositions, {-1}, true, "geometry.key_positions");
    Input("position_mask", kFlags, {-1, -1}, true, "method.position_mask");
    Input("key_valid", kFlags, {-1, -1}, true, "mask.key_valid");
    Input("query_documents", kIntegers, {-1}, true, "mask.query_documents");
    Input("key_documents", kIntegers, {-1}, true, "mask.key_documents")
        .Parameter("table_layout", "method.table_layout");
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
      .Input("q", kFloats, shape, false, "q.tensor",
             {{"rotary_offset", "q.rotary_offset"}, {"rotates_first", "q.rotates_first"}})
      .Input("k", kFloats, shape, true, "k.tensor",
             {{"rotary_offset", "k.rotary_offset"}, {"rotates_first", "k.rotates_first"}})
      .Positions({-1, -1})
      .Output("q", shape, "q", "q.output")
      .Output("k", shape, "k", "k.output")
      .Parameters({"layout", "direction"})
      .Parameters({"cache_index"}, "positions")
      .Parameters({"input_pairing", "output_pairing"}, "rotary.model")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding Table() {
  return Builder("table", v1::GenerateTableRequest::descriptor(), "rotary.model", "rotary.settings")
      .Positions({-1})
      .Output("cos", {-1, -1}, "cos", "cos_output")
      .Output("sin", {-1, -1}, "sin", "sin_output")
      .Parameters({"count", "form", "operand"})
      .OutputType(kFloatTypes)
      .Parameters({"input_pairing", "output_pairing"}, "rotary.model")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding Bias() {
  return Builder("bias", v1::GenerateBiasRequest::descriptor(), "method.model", "method")
      .Bias()
      .Output("bias", {-1, -1, -1}, "bias", "output")
      .Parameters({"form"})
      .OutputType({v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16, v1::DATA_TYPE_BF16, v1::DATA_TYPE_INT32})
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Encoding AddBias() {
  const std::vector<int64_t> shape = {-1, -1, -1, -1};
  return Builder("add_bias", v1::AddBiasRequest::descriptor(), "method.model", "method")
      .Input("scores", kFloats, shape, false, "scores")
      .Bias()
      .Output("scores", shape, "scores", "output")
      .OfModel()
      .PrecisionAndDevice()
      .Done();
}

Builder Embedding(std::string_view model) {
  Builder builder("embedding", v1::GenerateEmbeddingRequest::descriptor(), model, "");
  builder.Positions({-1}).Input("add_to", kFloats, {-1, -1, -1}, true, "add_to");
  builder.Output("embedding", {-1, -1}, "embedding", "output")
      .Parameters({"count"})
      .OutputType(kFloatTypes)
      .PrecisionAndDevice();
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
          Embedding("sinusoidal.model").Input("token_valid", kFlags, {-1, -1}, true, "sinusoidal.token_valid").Done(),
      .grid = Embedding("grid.model").Parameters({"height", "width", "frames"}, "grid").Done(),
      .learned = Embedding("learned.model")
                     .Input("table", kTables, {-1, -1}, false, "learned.table")
                     .Input("token_valid", kFlags, {-1, -1}, true, "learned.token_valid")
                     .Done(),
      .embedding = Embedding("").Done()};
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

bool FieldPath::IsSet(const Message& root) const {
  const Message* message = &root;
  for (const FieldDescriptor* field : fields_) {
    const auto& reflection = *message->GetReflection();
    const bool has =
        field->is_repeated() ? reflection.FieldSize(*message, field) > 0 : reflection.HasField(*message, field);
    if (!has || field == fields_.back()) return has;
    message = &reflection.GetMessage(*message, field);
  }
  return false;
}

absl::StatusOr<const OutputField*> Encoding::FindOutput(const std::string& place, const std::string& output) const {
  std::string names;
  for (const OutputField& field : outputs) {
    if (field.name == output) return &field;
    names += (names.empty() ? "" : ", ") + field.name;
  }
  return InvalidArgument("UNKNOWN_VALUE", place, output, "must be one of " + names);
}

const Encodings& AllEncodings() {
  static const auto* const encodings = new Encodings(MakeEncodings());
  return *encodings;
}

}  // namespace posenc::server
