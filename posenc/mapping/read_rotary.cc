#include <fmt/format.h>
#include <google/protobuf/reflection.h>

#include <string>

#include "posenc/mapping/read.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::FrequencyArithmetic, Frequencies> kFrequencies = {
    {v1::FREQUENCY_ARITHMETIC_EXACT, Frequencies::kExact},
    {v1::FREQUENCY_ARITHMETIC_FLOAT64, Frequencies::kFloat64},
    {v1::FREQUENCY_ARITHMETIC_FLOAT32, Frequencies::kFloat32},
};
constexpr EnumPairs<v1::TableDtype, TableDtype> kTableDtypes = {
    {v1::TABLE_DTYPE_FLOAT32, TableDtype::kFloat32},
    {v1::TABLE_DTYPE_TENSOR, TableDtype::kTensor},
    {v1::TABLE_DTYPE_FLOAT64, TableDtype::kFloat64},
};
constexpr EnumPairs<v1::Rounding, Rounding> kRoundings = {
    {v1::ROUNDING_ONCE, Rounding::kOnce},
    {v1::ROUNDING_EACH_OPERATION, Rounding::kEachOperation},
};
constexpr EnumPairs<v1::LongropeBranch, LongropeBranch> kBranches = {
    {v1::LONGROPE_BRANCH_UNSPECIFIED, LongropeBranch::kBySeqLen},
    {v1::LONGROPE_BRANCH_SHORT, LongropeBranch::kShort},
    {v1::LONGROPE_BRANCH_LONG, LongropeBranch::kLong},
};
constexpr EnumPairs<v1::MropeOrder, MropeOrder> kMropeOrders = {
    {v1::MROPE_ORDER_UNSPECIFIED, MropeOrder::kNone},
    {v1::MROPE_ORDER_CONTIGUOUS, MropeOrder::kContiguous},
    {v1::MROPE_ORDER_INTERLEAVED, MropeOrder::kInterleaved},
    {v1::MROPE_ORDER_ERNIE, MropeOrder::kErnie},
};

using google::protobuf::FieldDescriptor;

// The fields of RopeParameters have the same names on both sides (VisitFields is the list), so that reflection maps
// them. Looked up by name once, because every call reads them.
const FieldDescriptor* const* FieldsInOrder() {
  static const auto* fields = [] {
    auto* found = new std::vector<const FieldDescriptor*>;
    const RopeParameters any;
    VisitFields(any, [found](std::string_view name, const auto&) {
      found->push_back(v1::RopeParameters::descriptor()->FindFieldByName(std::string(name)));
    });
    return found;
  }();
  return fields->data();
}

struct FromMessage {
  const v1::RopeParameters& message;
  const google::protobuf::Reflection* reflection = message.GetReflection();
  const FieldDescriptor* const* next = FieldsInOrder();

  void operator()(std::string_view, std::optional<double>& field) {
    const FieldDescriptor* from = *next++;
    if (reflection->HasField(message, from)) field = reflection->GetDouble(message, from);
  }
  void operator()(std::string_view, std::optional<bool>& field) {
    const FieldDescriptor* from = *next++;
    if (reflection->HasField(message, from)) field = reflection->GetBool(message, from);
  }
  template <class T>
  void operator()(std::string_view, std::vector<T>& field) {
    const FieldDescriptor* from = *next++;
    if (reflection->FieldSize(message, from) == 0) return;
    const auto values = reflection->GetRepeatedFieldRef<T>(message, from);
    field.assign(values.begin(), values.end());
  }
  // Enums may be invalid: ReadRopeParameters reads them.
  void operator()(std::string_view, LongropeBranch&) { ++next; }
  void operator()(std::string_view, MropeOrder&) { ++next; }
};

struct ToMessage {
  v1::RopeParameters* message;
  const FieldDescriptor* Field(std::string_view name) const {
    return message->GetDescriptor()->FindFieldByName(std::string(name));
  }
  void operator()(std::string_view name, const std::optional<double>& field) const {
    if (field) message->GetReflection()->SetDouble(message, Field(name), *field);
  }
  void operator()(std::string_view name, const std::optional<bool>& field) const {
    if (field) message->GetReflection()->SetBool(message, Field(name), *field);
  }
  void operator()(std::string_view name, const std::vector<double>& field) const {
    for (double value : field) message->GetReflection()->AddDouble(message, Field(name), value);
  }
  void operator()(std::string_view name, const std::vector<int64_t>& field) const {
    for (int64_t value : field) message->GetReflection()->AddInt64(message, Field(name), value);
  }
  void operator()(std::string_view, const LongropeBranch& field) const {
    message->set_longrope_branch(Name(field, kBranches));
  }
  void operator()(std::string_view, const MropeOrder& field) const {
    message->set_mrope_order(Name(field, kMropeOrders));
  }
};

absl::StatusOr<RopeParameters> ReadRopeParameters(const v1::RopeParameters& message) {
  RopeParameters parameters;
  parameters.rope_type = message.rope_type();
  VisitFields(parameters, FromMessage{message});
  POSENC_ASSIGN_OR_RETURN(parameters.longrope_branch,
                          Choose("rope_parameters.longrope_branch", message.longrope_branch(), kBranches));
  POSENC_ASSIGN_OR_RETURN(parameters.mrope_order,
                          Choose("rope_parameters.mrope_order", message.mrope_order(), kMropeOrders));
  return parameters;
}

AxialRope ReadAxial(const v1::AxialRope& message) {
  AxialRope axial;
  axial.alternating = message.alternating();
  for (const v1::AxialAxis& axis : message.axes()) {
    axial.axes.push_back({axis.dim(), {}, axis.frequency_start()});
    if (axis.has_rope_theta()) axial.axes.back().rope_theta = axis.rope_theta();
  }
  return axial;
}

absl::StatusOr<GivenTable> ReadTable(const Reader& reader, const v1::GivenTable& message) {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("given_table.cos", message.cos()));
  POSENC_ASSIGN_OR_RETURN(const TensorShape other, reader.Shape("given_table.sin", message.sin()));
  if (shape.dtype != DType::kFP32 && shape.dtype != DType::kFP16 && shape.dtype != DType::kBF16 &&
      shape.dtype != DType::kFP64) {
    return InvalidArgument("UNSUPPORTED", "given_table.cos.dtype", posenc::Name(shape.dtype),
                           "must be FP32, FP16, BF16 or FP64");
  }
  if (shape.rank() != 2) {
    return InvalidArgument("MISMATCH", "given_table.cos.shape", ToString(shape.shape),
                           "must be [rows, rotary_dim/2] or [rows, rotary_dim]");
  }
  if (shape.dtype != other.dtype || shape.shape != other.shape) {
    return InvalidArgument("MISMATCH", "given_table.sin",
                           std::string(posenc::Name(other.dtype)) + " " + ToString(other.shape),
                           "must match cos: " + std::string(posenc::Name(shape.dtype)) + " " + ToString(shape.shape));
  }
  GivenTable table{shape.dtype, shape.shape[0], shape.shape[1]};
  POSENC_ASSIGN_OR_RETURN(table.form, Choose("given_table.form", message.form(), kTableForms));
  for (const auto& [tensor, data] : {std::pair{&message.cos(), &table.cos}, {&message.sin(), &table.sin}}) {
    std::vector<std::byte> bytes(reader.payloads.Size(*tensor));
    reader.payloads.CopyTo(*tensor, bytes.data());
    *data = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }
  return table;
}

void WriteTable(const GivenTable& table, v1::GivenTable* message) {
  for (const auto& [tensor, data] :
       {std::pair{message->mutable_cos(), &table.cos}, {message->mutable_sin(), &table.sin}}) {
    WriteShape({table.dtype, {table.rows, table.width}}, tensor);
    tensor->set_data((*data)->data(), (*data)->size());
  }
  message->set_form(Name(table.form, kTableForms));
}

}  // namespace

absl::StatusOr<std::optional<Pairing>> ReadPairing(std::string_view field, v1::Pairing pairing) {
  if (pairing == v1::PAIRING_UNSPECIFIED) return std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const Pairing ours, Choose(field, pairing, kPairings));
  return ours;
}

absl::StatusOr<RotarySettings> ReadRotarySettings(const Reader& reader, const v1::RotarySettings& message) {
  RotarySettings settings;
  switch (message.frequencies_case()) {
    case v1::RotarySettings::FREQUENCIES_NOT_SET: break;
    case v1::RotarySettings::kRopeParameters: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, ReadRopeParameters(message.rope_parameters()));
      break;
    }
    case v1::RotarySettings::kGivenFrequencies: {
      const v1::GivenFrequencies& given = message.given_frequencies();
      GivenFrequencies frequencies{
          {given.inv_freq().begin(), given.inv_freq().end()}, {}, {given.axis().begin(), given.axis().end()}};
      if (given.has_attention_scaling()) frequencies.attention_scaling = given.attention_scaling();
      settings.frequencies = std::move(frequencies);
      break;
    }
    case v1::RotarySettings::kAxial: settings.frequencies = ReadAxial(message.axial()); break;
    case v1::RotarySettings::kGivenTable: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, ReadTable(reader, message.given_table()));
      break;
    }
  }
  if (message.has_xpos()) {
    settings.xpos.emplace();
    if (message.xpos().has_scale_base()) settings.xpos->scale_base = message.xpos().scale_base();
    if (message.xpos().has_centre()) settings.xpos->centre = message.xpos().centre();
  }
  if (message.has_rotary_dim()) settings.rotary_dim = message.rotary_dim();
  if (message.has_head_dim()) settings.head_dim = message.head_dim();
  if (message.has_max_position_embeddings()) settings.max_position_embeddings = message.max_position_embeddings();
  POSENC_ASSIGN_OR_RETURN(settings.input_pairing, ReadPairing("input_pairing", message.input_pairing()));
  POSENC_ASSIGN_OR_RETURN(settings.output_pairing, ReadPairing("output_pairing", message.output_pairing()));
  if (message.has_half_split_parts()) settings.half_split_parts = message.half_split_parts();
  return settings;
}

void WriteRotarySettings(const RotarySettings& settings, v1::RotarySettings* message) {
  if (const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies)) {
    message->mutable_rope_parameters()->set_rope_type(parameters->rope_type);
    VisitFields(*parameters, ToMessage{message->mutable_rope_parameters()});
  } else if (const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    message->mutable_given_frequencies()->mutable_inv_freq()->Assign(given->inv_freq.begin(), given->inv_freq.end());
    if (given->attention_scaling) {
      message->mutable_given_frequencies()->set_attention_scaling(*given->attention_scaling);
    }
    message->mutable_given_frequencies()->mutable_axis()->Assign(given->axis.begin(), given->axis.end());
  } else if (const auto* axial = std::get_if<AxialRope>(&settings.frequencies)) {
    message->mutable_axial()->set_alternating(axial->alternating);
    for (const AxialAxis& axis : axial->axes) {
      v1::AxialAxis* to = message->mutable_axial()->add_axes();
      to->set_dim(axis.dim);
      if (axis.rope_theta) to->set_rope_theta(*axis.rope_theta);
      to->set_frequency_start(axis.frequency_start);
    }
  } else if (const auto* table = std::get_if<GivenTable>(&settings.frequencies)) {
    WriteTable(*table, message->mutable_given_table());
  }
  if (settings.xpos) {
    if (settings.xpos->scale_base) message->mutable_xpos()->set_scale_base(*settings.xpos->scale_base);
    if (settings.xpos->centre) message->mutable_xpos()->set_centre(*settings.xpos->centre);
  }
  if (settings.rotary_dim) message->set_rotary_dim(*settings.rotary_dim);
  if (settings.head_dim) message->set_head_dim(*settings.head_dim);
  if (settings.max_position_embeddings) message->set_max_position_embeddings(*settings.max_position_embeddings);
  if (settings.input_pairing) message->set_input_pairing(Name(*settings.input_pairing, kPairings));
  if (settings.output_pairing) message->set_output_pairing(Name(*settings.output_pairing, kPairings));
  if (settings.half_split_parts != 1) message->set_half_split_parts(settings.half_split_parts);
}

absl::StatusOr<ModelSource> ReadModelSource(const v1::ModelConfig& message, std::string_view field) {
  const auto path = [field](std::string_view name) {
    return fmt::format("{}{}{}", field, field.empty() ? "" : ".", name);
  };
  ModelSource source;
  source.config_json = message.config_json();
  if (!message.config_json_text().empty()) {
    if (!message.config_json().empty()) {
      return InvalidArgument("CONFLICT", path("config_json_text"), "", "cannot be combined with config_json");
    }
    source.config_json = message.config_json_text();
  }
  source.component = message.component();
  switch (message.layer_case()) {
    case v1::ModelConfig::LAYER_NOT_SET: break;
    case v1::ModelConfig::kLayerType: source.layer = message.layer_type(); break;
    case v1::ModelConfig::kLayerIndex: source.layer = message.layer_index(); break;
  }
  POSENC_ASSIGN_OR_RETURN(source.input_pairing, ReadPairing(path("input_pairing"), message.input_pairing()));
  POSENC_ASSIGN_OR_RETURN(source.output_pairing, ReadPairing(path("output_pairing"), message.output_pairing()));
  return source;
}

absl::StatusOr<Precision> ReadPrecision(const v1::Precision& message, const std::optional<Precision>& model) {
  switch (message.choice_case()) {
    case v1::Precision::CHOICE_NOT_SET: return kExactPrecision;
    case v1::Precision::kAxes: {
      const v1::PrecisionAxes& axes = message.axes();
      Precision precision;
      POSENC_ASSIGN_OR_RETURN(precision.frequencies,
                              Choose("precision.axes.frequencies", axes.frequencies(), kFrequencies));
      POSENC_ASSIGN_OR_RETURN(precision.table_dtype,
                              Choose("precision.axes.table_dtype", axes.table_dtype(), kTableDtypes));
      POSENC_ASSIGN_OR_RETURN(precision.rounding, Choose("precision.axes.rounding", axes.rounding(), kRoundings));
      return precision;
    }
    case v1::Precision::kPreset: break;
  }
  if (message.preset() == v1::PRECISION_PRESET_MODEL) {
    if (model) return *model;
    return InvalidArgument("CONFLICT", "precision.preset", "PRECISION_PRESET_MODEL", "requires a model's config.json");
  }
  return Choose<v1::PrecisionPreset, Precision>("precision.preset", message.preset(),
                                                {{v1::PRECISION_PRESET_EXACT, kExactPrecision},
                                                 {v1::PRECISION_PRESET_F32, kF32Precision},
                                                 {v1::PRECISION_PRESET_HF_EAGER, kHfEagerPrecision},
                                                 {v1::PRECISION_PRESET_VLLM, kVllmPrecision},
                                                 {v1::PRECISION_PRESET_FLUX, kFluxPrecision}});
}

void WritePrecision(const Precision& precision, v1::PrecisionAxes* axes) {
  axes->set_frequencies(Name(precision.frequencies, kFrequencies));
  axes->set_table_dtype(Name(precision.table_dtype, kTableDtypes));
  axes->set_rounding(Name(precision.rounding, kRoundings));
}

}  // namespace posenc::wire
