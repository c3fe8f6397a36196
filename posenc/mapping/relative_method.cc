#include "posenc/mapping/relative_method.h"

#include "posenc/mapping/bias_method.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::ShawOrder, ShawOrder> kShawOrders = {
    {v1::SHAW_ORDER_KEY_MINUS_QUERY, ShawOrder::kKeyMinusQuery},
    {v1::SHAW_ORDER_QUERY_MINUS_KEY, ShawOrder::kQueryMinusKey},
};
constexpr EnumPairs<v1::TransformerXlEncoding, TransformerXlEncoding> kTransformerXlEncodings = {
    {v1::TRANSFORMER_XL_ENCODING_UNSPECIFIED, TransformerXlEncoding::kHalves},
    {v1::TRANSFORMER_XL_ENCODING_HALVES, TransformerXlEncoding::kHalves},
    {v1::TRANSFORMER_XL_ENCODING_INTERLEAVED, TransformerXlEncoding::kInterleaved},
    {v1::TRANSFORMER_XL_ENCODING_TENSOR2TENSOR, TransformerXlEncoding::kTensor2Tensor},
};
constexpr EnumPairs<v1::TupeCls, TupeCls> kTupeCls = {
    {v1::TUPE_CLS_TIED, TupeCls::kTied},
    {v1::TUPE_CLS_UNTIED, TupeCls::kUntied},
    {v1::TUPE_CLS_UNTIED_WITHOUT_BIAS, TupeCls::kUntiedWithoutBias},
};
constexpr EnumPairs<v1::DebertaDistance, DebertaDistance> kDebertaDistances = {
    {v1::DEBERTA_DISTANCE_UNBOUNDED, DebertaDistance::kUnbounded},
    {v1::DEBERTA_DISTANCE_CLAMPED, DebertaDistance::kClamped},
};
constexpr EnumPairs<v1::Wavelet, Wavelet> kWavelets = {
    {v1::WAVELET_RICKER, Wavelet::kRicker},
    {v1::WAVELET_GAUSSIAN, Wavelet::kGaussian},
    {v1::WAVELET_MORLET, Wavelet::kMorlet},
    {v1::WAVELET_HAAR, Wavelet::kHaar},
};
constexpr EnumPairs<v1::WprChannels, WprChannels> kWprChannels = {
    {v1::WPR_CHANNELS_SHIFT_FASTEST, WprChannels::kShiftFastest},
    {v1::WPR_CHANNELS_SCALE_FASTEST, WprChannels::kScaleFastest},
};
constexpr EnumPairs<v1::WprDistance, WprDistance> kWprDistances = {
    {v1::WPR_DISTANCE_QUERY_MINUS_KEY, WprDistance::kQueryMinusKey},
    {v1::WPR_DISTANCE_KEY_MINUS_QUERY, WprDistance::kKeyMinusQuery},
};

absl::StatusOr<Projection> ReadProjection(const Reader& reader, const v1::Projection& message) {
  Projection projection;
  if (message.has_weight()) {
    POSENC_ASSIGN_OR_RETURN(Matrix<float> weight, reader.Weight("weight", message.weight()));
    POSENC_ASSIGN_OR_RETURN(const bool output_first,
                            (Choose<v1::WeightLayout, bool>("layout", message.layout(),
                                                            {{v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT, true},
                                                             {v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT, false}})));
    projection.weight = output_first ? std::move(weight) : Turned(weight);
  } else if (message.layout() != v1::WEIGHT_LAYOUT_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "layout", "", "is read with a weight only");
  }
  if (message.has_bias()) {
    POSENC_ASSIGN_OR_RETURN(projection.bias, reader.WeightVector("bias", message.bias()));
  }
  return projection;
}

absl::StatusOr<LayerNorm> ReadLayerNorm(const Reader& reader, const v1::LayerNorm& message) {
  LayerNorm norm;
  POSENC_ASSIGN_OR_RETURN(norm.weight, reader.WeightVector("weight", message.weight()));
  POSENC_ASSIGN_OR_RETURN(norm.bias, reader.WeightVector("bias", message.bias()));
  if (message.has_epsilon()) norm.epsilon = message.epsilon();
  return norm;
}

// Returns the value of a field, or its error with the field's name prefixed.
template <class T>
absl::StatusOr<T> In(std::string_view field, absl::StatusOr<T> read) {
  if (!read.ok()) return Within(field, read.status());
  return read;
}

absl::StatusOr<ShawSettings> Read(const Reader& reader, const v1::Shaw& message) {
  ShawSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.table, reader.Weight("table", message.table()));
  POSENC_ASSIGN_OR_RETURN(settings.order, Choose("order", message.order(), kShawOrders));
  if (message.has_clip()) settings.clip = message.clip();
  settings.key_term = message.key_term();
  if (message.has_before()) settings.before = message.before();
  return settings;
}

absl::StatusOr<TransformerXlSettings> Read(const Reader& reader, const v1::TransformerXl& message) {
  TransformerXlSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.position, In("position", ReadProjection(reader, message.position())));
  if (message.has_position_bias()) {
    POSENC_ASSIGN_OR_RETURN(settings.position_bias, reader.Weight("position_bias", message.position_bias()));
  }
  if (message.has_content_bias()) {
    POSENC_ASSIGN_OR_RETURN(settings.content_bias, reader.Weight("content_bias", message.content_bias()));
  }
  if (message.has_clamp_len()) settings.clamp_len = message.clamp_len();
  POSENC_ASSIGN_OR_RETURN(settings.encoding, Choose("encoding", message.encoding(), kTransformerXlEncodings));
  return settings;
}

absl::StatusOr<TupeSettings> Read(const Reader& reader, const v1::Tupe& message) {
  TupeSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.position_embeddings,
                          reader.Weight("position_embeddings", message.position_embeddings()));
  if (message.has_layer_norm()) {
    POSENC_ASSIGN_OR_RETURN(settings.layer_norm, In("layer_norm", ReadLayerNorm(reader, message.layer_norm())));
  }
  POSENC_ASSIGN_OR_RETURN(settings.query, In("query", ReadProjection(reader, message.query())));
  POSENC_ASSIGN_OR_RETURN(settings.key, In("key", ReadProjection(reader, message.key())));
  if (message.has_relative_bias()) settings.relative_bias = ReadT5(message.relative_bias());
  if (message.has_relative_bias_table()) {
    POSENC_ASSIGN_OR_RETURN(settings.relative_bias_table,
                            ReadBiasTable(reader, "relative_bias_table", message.relative_bias_table(),
                                          "relative_bias_table_layout", message.relative_bias_table_layout()));
  } else if (message.relative_bias_table_layout() != v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "relative_bias_table_layout", "", "is read with a table only");
  }
  POSENC_ASSIGN_OR_RETURN(settings.cls, Choose("cls", message.cls(), kTupeCls));
  return settings;
}

absl::StatusOr<DebertaSettings> Read(const Reader& reader, const v1::Deberta& message) {
  DebertaSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.relative_embeddings,
                          reader.Weight("relative_embeddings", message.relative_embeddings()));
  if (message.has_layer_norm()) {
    POSENC_ASSIGN_OR_RETURN(settings.layer_norm, In("layer_norm", ReadLayerNorm(reader, message.layer_norm())));
  }
  if (message.has_key()) {
    POSENC_ASSIGN_OR_RETURN(settings.key, In("key", ReadProjection(reader, message.key())));
  }
  if (message.has_query()) {
    POSENC_ASSIGN_OR_RETURN(settings.query, In("query", ReadProjection(reader, message.query())));
  }
  if (message.has_position_buckets()) settings.position_buckets = message.position_buckets();
  settings.max_relative_positions = message.max_relative_positions();
  POSENC_ASSIGN_OR_RETURN(settings.distance, Choose("distance", message.distance(), kDebertaDistances));
  return settings;
}

absl::StatusOr<WprSettings> Read(const Reader&, const v1::Wpr& message) {
  WprSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.wavelet, Choose("wavelet", message.wavelet(), kWavelets));
  if (message.has_scales()) settings.scales = message.scales();
  if (message.has_first_exponent()) settings.first_exponent = message.first_exponent();
  POSENC_ASSIGN_OR_RETURN(settings.channels, Choose("channels", message.channels(), kWprChannels));
  POSENC_ASSIGN_OR_RETURN(settings.distance, Choose("distance", message.distance(), kWprDistances));
  if (message.has_morlet_frequency()) settings.morlet_frequency = message.morlet_frequency();
  return settings;
}

absl::StatusOr<CopeSettings> Read(const Reader& reader, const v1::Cope& message) {
  CopeSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.position_embeddings,
                          reader.Weight("position_embeddings", message.position_embeddings()));
  return settings;
}

// Returns the settings as a method, or their error with the method's name prefixed.
template <class Settings>
absl::StatusOr<RelativeMethod> Method(std::string_view name, absl::StatusOr<Settings> settings) {
  if (!settings.ok()) return Within(name, settings.status());
  return RelativeMethod(*std::move(settings));
}

// Writes the weight unless it is empty, as for a model known from its config.json only.
template <class Message>
void WriteWeight(const Matrix<float>& weight, Message* message, v1::Tensor* (Message::*field)()) {
  if (!weight.values.empty()) WriteMatrix(weight, (message->*field)());
}

void Write(const Projection& projection, v1::Projection* message) {
  if (projection.weight) {
    WriteMatrix(*projection.weight, message->mutable_weight());
    message->set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  }
  if (!projection.bias.empty()) WriteVector(projection.bias, message->mutable_bias());
}

void Write(const LayerNorm& norm, v1::LayerNorm* message) {
  if (!norm.weight.empty()) WriteVector(norm.weight, message->mutable_weight());
  if (!norm.bias.empty()) WriteVector(norm.bias, message->mutable_bias());
  if (norm.epsilon) message->set_epsilon(*norm.epsilon);
}

void Write(const ShawSettings& settings, v1::RelativeMethod* method) {
  v1::Shaw& shaw = *method->mutable_shaw();
  WriteWeight(settings.table, &shaw, &v1::Shaw::mutable_table);
  shaw.set_order(Name(settings.order, kShawOrders));
  if (settings.clip) shaw.set_clip(*settings.clip);
  shaw.set_key_term(settings.key_term);
  if (settings.before) shaw.set_before(*settings.before);
}

void Write(const TransformerXlSettings& settings, v1::RelativeMethod* method) {
  v1::TransformerXl& message = *method->mutable_transformer_xl();
  Write(settings.position, message.mutable_position());
  if (settings.position_bias) WriteMatrix(*settings.position_bias, message.mutable_position_bias());
  if (settings.content_bias) WriteMatrix(*settings.content_bias, message.mutable_content_bias());
  if (settings.clamp_len) message.set_clamp_len(*settings.clamp_len);
  if (settings.encoding != TransformerXlEncoding::kHalves) {  // fingerprints of kHalves are older than the field
    message.set_encoding(Name(settings.encoding, kTransformerXlEncodings));
  }
}

void Write(const TupeSettings& settings, v1::RelativeMethod* method) {
  v1::Tupe& message = *method->mutable_tupe();
  WriteMatrix(settings.position_embeddings, message.mutable_position_embeddings());
  if (settings.layer_norm) Write(*settings.layer_norm, message.mutable_layer_norm());
  Write(settings.query, message.mutable_query());
  Write(settings.key, message.mutable_key());
  if (settings.relative_bias) WriteT5(*settings.relative_bias, message.mutable_relative_bias());
  if (settings.relative_bias_table) {
    WriteMatrix(*settings.relative_bias_table, message.mutable_relative_bias_table());
    message.set_relative_bias_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
  }
  message.set_cls(Name(settings.cls, kTupeCls));
}

void Write(const DebertaSettings& settings, v1::RelativeMethod* method) {
  v1::Deberta& message = *method->mutable_deberta();
  WriteWeight(settings.relative_embeddings, &message, &v1::Deberta::mutable_relative_embeddings);
  if (settings.layer_norm) Write(*settings.layer_norm, message.mutable_layer_norm());
  if (settings.key) Write(*settings.key, message.mutable_key());
  if (settings.query) Write(*settings.query, message.mutable_query());
  if (settings.position_buckets) message.set_position_buckets(*settings.position_buckets);
  message.set_max_relative_positions(settings.max_relative_positions);
  message.set_distance(Name(settings.distance, kDebertaDistances));
}

void Write(const WprSettings& settings, v1::RelativeMethod* method) {
  v1::Wpr& message = *method->mutable_wpr();
  message.set_wavelet(Name(settings.wavelet, kWavelets));
  if (settings.scales) message.set_scales(*settings.scales);
  if (settings.first_exponent) message.set_first_exponent(*settings.first_exponent);
  message.set_channels(Name(settings.channels, kWprChannels));
  message.set_distance(Name(settings.distance, kWprDistances));
  if (settings.morlet_frequency) message.set_morlet_frequency(*settings.morlet_frequency);
}

void Write(const CopeSettings& settings, v1::RelativeMethod* method) {
  WriteMatrix(settings.position_embeddings, method->mutable_cope()->mutable_position_embeddings());
}

}  // namespace

absl::StatusOr<RelativeMethod> ReadRelativeMethod(const Reader& reader, const v1::RelativeMethod& message) {
  switch (message.method_case()) {
    case v1::RelativeMethod::METHOD_NOT_SET:
      return InvalidArgument("MISSING", "", "", "give shaw, transformer_xl, tupe, deberta, wpr or cope");
    case v1::RelativeMethod::kShaw: return Method("shaw", Read(reader, message.shaw()));
    case v1::RelativeMethod::kTransformerXl: return Method("transformer_xl", Read(reader, message.transformer_xl()));
    case v1::RelativeMethod::kTupe: return Method("tupe", Read(reader, message.tupe()));
    case v1::RelativeMethod::kDeberta: return Method("deberta", Read(reader, message.deberta()));
    case v1::RelativeMethod::kWpr: return Method("wpr", Read(reader, message.wpr()));
    case v1::RelativeMethod::kCope: return Method("cope", Read(reader, message.cope()));
  }
  __builtin_unreachable();
}

void WriteRelativeMethod(const RelativeMethod& method, v1::RelativeMethod* message) {
  std::visit([&](const auto& settings) { Write(settings, message); }, method);
}

}  // namespace posenc::wire
