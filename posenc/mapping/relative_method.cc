#include "posenc/mapping/relative_method.h"

#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/fields.h"
#include "posenc/methods/relative/relative.h"

namespace posenc::wire {

template <>
inline constexpr EnumPairs<v1::ShawOrder, ShawOrder> kEnumPairs<ShawOrder> = {
    {v1::SHAW_ORDER_KEY_MINUS_QUERY, ShawOrder::kKeyMinusQuery},
    {v1::SHAW_ORDER_QUERY_MINUS_KEY, ShawOrder::kQueryMinusKey},
};
template <>
inline constexpr EnumPairs<v1::TransformerXlEncoding, TransformerXlEncoding> kEnumPairs<TransformerXlEncoding> = {
    {v1::TRANSFORMER_XL_ENCODING_UNSPECIFIED, TransformerXlEncoding::kHalves},
    {v1::TRANSFORMER_XL_ENCODING_HALVES, TransformerXlEncoding::kHalves},
    {v1::TRANSFORMER_XL_ENCODING_INTERLEAVED, TransformerXlEncoding::kInterleaved},
    {v1::TRANSFORMER_XL_ENCODING_TENSOR2TENSOR, TransformerXlEncoding::kTensor2Tensor},
};
template <>
inline constexpr EnumPairs<v1::TupeCls, TupeCls> kEnumPairs<TupeCls> = {
    {v1::TUPE_CLS_TIED, TupeCls::kTied},
    {v1::TUPE_CLS_UNTIED, TupeCls::kUntied},
    {v1::TUPE_CLS_UNTIED_WITHOUT_BIAS, TupeCls::kUntiedWithoutBias},
};
template <>
inline constexpr EnumPairs<v1::DebertaDistance, DebertaDistance> kEnumPairs<DebertaDistance> = {
    {v1::DEBERTA_DISTANCE_UNBOUNDED, DebertaDistance::kUnbounded},
    {v1::DEBERTA_DISTANCE_CLAMPED, DebertaDistance::kClamped},
};
template <>
inline constexpr EnumPairs<v1::Wavelet, Wavelet> kEnumPairs<Wavelet> = {
    {v1::WAVELET_RICKER, Wavelet::kRicker},
    {v1::WAVELET_GAUSSIAN, Wavelet::kGaussian},
    {v1::WAVELET_MORLET, Wavelet::kMorlet},
    {v1::WAVELET_HAAR, Wavelet::kHaar},
};
template <>
inline constexpr EnumPairs<v1::WprChannels, WprChannels> kEnumPairs<WprChannels> = {
    {v1::WPR_CHANNELS_SHIFT_FASTEST, WprChannels::kShiftFastest},
    {v1::WPR_CHANNELS_SCALE_FASTEST, WprChannels::kScaleFastest},
};
template <>
inline constexpr EnumPairs<v1::WprDistance, WprDistance> kEnumPairs<WprDistance> = {
    {v1::WPR_DISTANCE_QUERY_MINUS_KEY, WprDistance::kQueryMinusKey},
    {v1::WPR_DISTANCE_KEY_MINUS_QUERY, WprDistance::kKeyMinusQuery},
};

template <>
inline constexpr EnumPairs<v1::InklingScaled, InklingScaled> kEnumPairs<InklingScaled> = {
    {v1::INKLING_SCALED_BIAS, InklingScaled::kBias},
    {v1::INKLING_SCALED_STATES, InklingScaled::kStates},
};

// A projection is [outputs, inputs], whichever layout the weight has in the message.
template <>
absl::Status ReadFields(const Reader& reader, const google::protobuf::Message& any, Projection* projection) {
  const auto& message = static_cast<const v1::Projection&>(any);
  if (message.has_weight()) {
    POSENC_ASSIGN_OR_RETURN(projection->weight, reader.Weight("weight", message.weight()));
    POSENC_ASSIGN_OR_RETURN(const bool output_first,
                            (Choose<v1::WeightLayout, bool>("layout", message.layout(),
                                                            {{v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT, true},
                                                             {v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT, false}})));
    if (!output_first) projection->weight = Turned(*projection->weight);
  } else if (message.layout() != v1::WEIGHT_LAYOUT_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "layout", "", "must be absent without a weight");
  }
  if (message.has_bias()) {
    POSENC_ASSIGN_OR_RETURN(projection->bias, reader.WeightVector("bias", message.bias()));
  }
  return absl::OkStatus();
}

template <>
void WriteFields(const Projection& projection, google::protobuf::Message* any) {
  auto* message = static_cast<v1::Projection*>(any);
  if (projection.weight) {
    WriteMatrix(*projection.weight, message->mutable_weight());
    message->set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  }
  if (!projection.bias.empty()) WriteVector(projection.bias, message->mutable_bias());
}

namespace {

absl::StatusOr<TupeSettings> ReadTupe(const Reader& reader, const v1::Tupe& message) {
  POSENC_ASSIGN_OR_RETURN(TupeSettings settings, Read<TupeSettings>(reader, message));
  const v1::Tensor* table = message.has_relative_bias_table() ? &message.relative_bias_table() : nullptr;
  POSENC_RETURN_IF_ERROR(ReadBiasTable(reader, "relative_bias_table", table, message.relative_bias_table_layout(),
                                       &settings.relative_bias_table));
  POSENC_ASSIGN_OR_RETURN(settings.cls, Choose("cls", message.cls(), kEnumPairs<TupeCls>));
  return settings;
}

// Writes what is not in POSENC_FIELDS.
void WriteRest(const TupeSettings& settings, v1::RelativeMethod* method) {
  v1::Tupe& message = *method->mutable_tupe();
  if (settings.relative_bias_table) {
    WriteMatrix(*settings.relative_bias_table, message.mutable_relative_bias_table());
    message.set_relative_bias_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
  }
  message.set_cls(Name(settings.cls, kEnumPairs<TupeCls>));
}

// Returns the settings as a method, or their error with the method's name prefixed.
template <class Settings>
absl::StatusOr<RelativeMethod> Method(std::string_view name, absl::StatusOr<Settings> settings) {
  if (!settings.ok()) return Within(name, settings.status());
  return RelativeMethod(*std::move(settings));
}

}  // namespace

absl::StatusOr<RelativeMethod> ReadRelativeMethod(const Reader& reader, const v1::RelativeMethod& message) {
  switch (message.method_case()) {
    case v1::RelativeMethod::METHOD_NOT_SET:
      return InvalidArgument("MISSING", "", "",
                             "must be given: shaw, transformer_xl, tupe, deberta, wpr, cope or inkling");
    case v1::RelativeMethod::kShaw: return Method("shaw", Read<ShawSettings>(reader, message.shaw()));
    case v1::RelativeMethod::kTransformerXl:
      return Method("transformer_xl", Read<TransformerXlSettings>(reader, message.transformer_xl()));
    case v1::RelativeMethod::kTupe: return Method("tupe", ReadTupe(reader, message.tupe()));
    case v1::RelativeMethod::kDeberta: return Method("deberta", Read<DebertaSettings>(reader, message.deberta()));
    case v1::RelativeMethod::kWpr: return Method("wpr", Read<WprSettings>(reader, message.wpr()));
    case v1::RelativeMethod::kCope: return Method("cope", Read<CopeSettings>(reader, message.cope()));
    case v1::RelativeMethod::kInkling: return Method("inkling", Read<InklingSettings>(reader, message.inkling()));
  }
  __builtin_unreachable();
}

void WriteRelativeMethod(const RelativeMethod& method, v1::RelativeMethod* message) {
  std::visit([&](const auto& settings) { WriteFields(settings, MutableMessage(NameOf(method), message)); }, method);
  if (const auto* tupe = std::get_if<TupeSettings>(&method)) WriteRest(*tupe, message);
  if (const auto* xl = std::get_if<TransformerXlSettings>(&method);
      xl && xl->encoding == TransformerXlEncoding::kHalves) {
    message->mutable_transformer_xl()->clear_encoding();  // fingerprints of kHalves are older than the field
  }
}

void WriteRelativeMethod(const ShawSettings& shaw, v1::RelativeMethod* message) {
  WriteFields(shaw, message->mutable_shaw());
}

}  // namespace posenc::wire
