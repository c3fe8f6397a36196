#include <fmt/format.h>

#include <string>

#include "posenc/base/memory_account.h"
#include "posenc/mapping/fields.h"
#include "posenc/mapping/read.h"

namespace posenc::wire {

template <>
inline constexpr EnumPairs<v1::LongropeBranch, LongropeBranch> kEnumPairs<LongropeBranch> = {
    {v1::LONGROPE_BRANCH_UNSPECIFIED, LongropeBranch::kBySeqLen},
    {v1::LONGROPE_BRANCH_SHORT, LongropeBranch::kShort},
    {v1::LONGROPE_BRANCH_LONG, LongropeBranch::kLong},
};
template <>
inline constexpr EnumPairs<v1::MropeOrder, MropeOrder> kEnumPairs<MropeOrder> = {
    {v1::MROPE_ORDER_UNSPECIFIED, MropeOrder::kNone},        {v1::MROPE_ORDER_CONTIGUOUS, MropeOrder::kContiguous},
    {v1::MROPE_ORDER_INTERLEAVED, MropeOrder::kInterleaved}, {v1::MROPE_ORDER_ERNIE, MropeOrder::kErnie},
    {v1::MROPE_ORDER_ELEMENTS, MropeOrder::kElements},
};
template <>
inline constexpr EnumPairs<v1::QueryScaleFunction, QueryScaleFunction> kEnumPairs<QueryScaleFunction> = {
    {v1::QUERY_SCALE_FUNCTION_LLAMA4, QueryScaleFunction::kLlama4},
    {v1::QUERY_SCALE_FUNCTION_MINISTRAL3, QueryScaleFunction::kMinistral3},
    {v1::QUERY_SCALE_FUNCTION_BEAM, QueryScaleFunction::kBeam},
    {v1::QUERY_SCALE_FUNCTION_LOGN, QueryScaleFunction::kLogn},
    {v1::QUERY_SCALE_FUNCTION_INKLING, QueryScaleFunction::kInkling},
};
template <>
inline constexpr EnumPairs<v1::PositionSource, PositionSource> kEnumPairs<PositionSource> = {
    {v1::POSITION_SOURCE_POSITION_IDS, PositionSource::kPositionIds},
    {v1::POSITION_SOURCE_CACHE_INDEX, PositionSource::kCacheIndex},
    {v1::POSITION_SOURCE_UNSPECIFIED, PositionSource::kPositionIds},
};

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

absl::StatusOr<GivenTable> ReadTable(const Reader& reader, const v1::GivenTable& message) {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("given_table.cos", message.cos()));
  POSENC_ASSIGN_OR_RETURN(const TensorShape other, reader.Shape("given_table.sin", message.sin()));
  if (shape.dtype != DType::kFP32 && shape.dtype != DType::kFP16 && shape.dtype != DType::kBF16 &&
      shape.dtype != DType::kFP64) {
    return InvalidArgument("UNSUPPORTED", "given_table.cos.dtype", posenc::Name(shape.dtype),
                           "must be FP32, FP16, BF16 or FP64");
  }
  const int64_t of_heads = message.per_head() ? 1 : 0;
  if (shape.rank() != 2 + of_heads && shape.rank() != 3 + of_heads) {
    return InvalidArgument("MISMATCH", "given_table.cos.shape", ToString(shape.shape),
                           message.per_head() ? "must be [rows, heads, w] or [B, S, heads, w] with per_head"
                                              : "must be [rows, w] or [B, S, w], w = rotary_dim/2 or rotary_dim");
  }
  if (shape.dtype != other.dtype || shape.shape != other.shape) {
    return InvalidArgument("MISMATCH", "given_table.sin",
                           std::string(posenc::Name(other.dtype)) + " " + ToString(other.shape),
                           "must match cos: " + std::string(posenc::Name(shape.dtype)) + " " + ToString(shape.shape));
  }
  GivenTable table{shape.dtype, shape.shape[0], shape.shape.back()};
  if (message.per_head()) table.heads = shape.shape[shape.rank() - 2];
  if (shape.rank() == 3 + of_heads) {
    if (shape.empty()) {
      return InvalidArgument("OUT_OF_RANGE", "given_table.cos.shape", ToString(shape.shape),
                             "must have at least one token");
    }
    table.sequences = shape.shape[0];
    table.rows *= shape.shape[1];
  }
  POSENC_ASSIGN_OR_RETURN(table.form, Choose("given_table.form", message.form(), kTableForms));
  for (const auto& [tensor, data] : {std::pair{&message.cos(), &table.cos}, {&message.sin(), &table.sin}}) {
    *data = std::make_shared<const std::vector<std::byte>>(CopyOf(reader.payloads, *tensor));
  }
  return table;
}

void WriteTable(const GivenTable& table, v1::GivenTable* message) {
  for (const auto& [tensor, data] :
       {std::pair{message->mutable_cos(), &table.cos}, {message->mutable_sin(), &table.sin}}) {
    std::vector<int64_t> shape = {table.rows};
    if (table.sequences > 0) shape = {table.sequences, table.rows / table.sequences};
    if (table.heads > 1) shape.push_back(table.heads);
    shape.push_back(table.width);
    WriteShape({table.dtype, shape}, tensor);
    WriteData({reinterpret_cast<const char*>((*data)->data()), (*data)->size()}, tensor);
  }
  message->set_form(Name(table.form, kTableForms));
  if (table.heads > 1) message->set_per_head(true);
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
      auto& parameters = settings.frequencies.emplace<RopeParameters>();
      parameters.rope_type = message.rope_parameters().rope_type();
      POSENC_RETURN_IF_ERROR(Within("rope_parameters", ReadFields(reader, message.rope_parameters(), &parameters)));
      break;
    }
    case v1::RotarySettings::kGivenFrequencies: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, Read<GivenFrequencies>(reader, message.given_frequencies()));
      break;
    }
    case v1::RotarySettings::kAxial: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, Read<AxialRope>(reader, message.axial()));
      break;
    }
    case v1::RotarySettings::kGivenTable: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, ReadTable(reader, message.given_table()));
      break;
    }
  }
  POSENC_RETURN_IF_ERROR(ReadFields(reader, message, &settings));
  return settings;
}

void WriteRotarySettings(const RotarySettings& settings, v1::RotarySettings* message) {
  if (const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies)) {
    message->mutable_rope_parameters()->set_rope_type(parameters->rope_type);
    WriteFields(*parameters, message->mutable_rope_parameters());
  } else if (const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    WriteFields(*given, message->mutable_given_frequencies());
  } else if (const auto* axial = std::get_if<AxialRope>(&settings.frequencies)) {
    WriteFields(*axial, message->mutable_axial());
  } else if (const auto* table = std::get_if<GivenTable>(&settings.frequencies)) {
    WriteTable(*table, message->mutable_given_table());
  }
  WriteFields(settings, message);
  if (settings.half_split_parts == 1) message->clear_half_split_parts();
}

absl::StatusOr<ModelSource> ReadModelSource(const v1::ModelConfig& message, std::string_view field) {
  const LargeBlocksMayBeRefused scope;
  const auto path = [field](std::string_view name) {
    return fmt::format("{}{}{}", field, field.empty() ? "" : ".", name);
  };
  ModelSource source;
  source.config_json = message.config_json();
  if (!message.config_json_text().empty()) {
    if (!message.config_json().empty()) {
      return InvalidArgument("CONFLICT", path("config_json_text"), "", "must be absent with config_json");
    }
    source.config_json = message.config_json_text();
  }
  source.gguf = message.gguf();
  if (!source.gguf.empty() && !source.config_json.empty()) {
    const std::string_view other = message.config_json().empty() ? "config_json_text" : "config_json";
    return Against(path(other),
                   InvalidArgument("CONFLICT", path("gguf"), "", fmt::format("must be absent with {}", other)));
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
    return InvalidArgument("CONFLICT", "precision.preset", "PRECISION_PRESET_MODEL",
                           "must be another preset without a model's config.json");
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
