#include "posenc/mapping/bias_method.h"

#include <fmt/format.h>

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::KerpleKernel, KerpleKernel> kKerpleKernels = {
    {v1::KERPLE_KERNEL_LOG, KerpleKernel::kLog},
    {v1::KERPLE_KERNEL_POWER, KerpleKernel::kPower},
};
constexpr EnumPairs<v1::SandwichConvention, SandwichConvention> kSandwichConventions = {
    {v1::SANDWICH_CONVENTION_PAPER, SandwichConvention::kPaper},
    {v1::SANDWICH_CONVENTION_SNIPPET, SandwichConvention::kSnippet},
};
constexpr EnumPairs<v1::BeitTable, BeitTable> kBeitTables = {
    {v1::BEIT_TABLE_PLAIN, BeitTable::kPlain},
    {v1::BEIT_TABLE_TRANSFORMERS, BeitTable::kTransformers},
};

absl::StatusOr<KerpleSettings> ReadKerple(const v1::Kerple& message) {
  KerpleSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.kernel, Choose("kernel", message.kernel(), kKerpleKernels));
  settings.a.assign(message.a().begin(), message.a().end());
  settings.p.assign(message.p().begin(), message.p().end());
  return settings;
}

absl::StatusOr<SandwichSettings> ReadSandwich(const v1::Sandwich& message) {
  SandwichSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention, Choose("convention", message.convention(), kSandwichConventions));
  settings.num_heads = message.num_heads();
  if (message.has_dim()) settings.dim = message.dim();
  if (message.has_base()) settings.base = message.base();
  return settings;
}

absl::StatusOr<BeitSettings> ReadBeit(const v1::BeitBias& message) {
  BeitSettings settings{{message.window_height(), message.window_width()}};
  POSENC_ASSIGN_OR_RETURN(settings.table, Choose("table", message.table(), kBeitTables));
  return settings;
}

absl::StatusOr<SwinV2Settings> ReadSwinV2(const Reader& reader, const v1::SwinV2Bias& message) {
  SwinV2Settings settings{{message.window_height(), message.window_width()}};
  if (message.has_pretrained_window_height() != message.has_pretrained_window_width()) {
    return InvalidArgument(
        "MISSING", message.has_pretrained_window_height() ? "pretrained_window_width" : "pretrained_window_height", "",
        "pretrained_window_height and pretrained_window_width must be set together");
  }
  if (message.has_pretrained_window_height()) {
    settings.pretrained_window = {message.pretrained_window_height(), message.pretrained_window_width()};
  }
  POSENC_ASSIGN_OR_RETURN(settings.hidden_weight, reader.Weight("hidden_weight", message.hidden_weight()));

  POSENC_ASSIGN_OR_RETURN(settings.hidden_bias, reader.WeightVector("hidden_bias", message.hidden_bias()));
  POSENC_ASSIGN_OR_RETURN(settings.output_weight, reader.Weight("output_weight", message.output_weight()));
  return settings;
}

absl::StatusOr<FireSettings> ReadFire(const Reader& reader, const v1::Fire& message) {
  FireSettings settings;
  if (message.has_c()) settings.c = message.c();
  if (message.has_threshold()) settings.threshold = message.threshold();
  if (message.has_epsilon()) settings.epsilon = message.epsilon();
  POSENC_ASSIGN_OR_RETURN(settings.hidden_weight, reader.WeightVector("hidden_weight", message.hidden_weight()));
  POSENC_ASSIGN_OR_RETURN(settings.hidden_bias, reader.WeightVector("hidden_bias", message.hidden_bias()));
  POSENC_ASSIGN_OR_RETURN(settings.output_weight, reader.Weight("output_weight", message.output_weight()));
  POSENC_ASSIGN_OR_RETURN(settings.output_bias, reader.WeightVector("output_bias", message.output_bias()));
  return settings;
}

absl::StatusOr<ForgetGateSettings> ReadForgetGate(const Reader& reader, const v1::ForgetGate& message) {
  if (!message.has_log_gates()) return InvalidArgument("MISSING", "log_gates", "", "is required");
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("log_gates", message.log_gates()));
  if (shape.rank() != 2 && shape.rank() != 3) {
    return InvalidArgument("MISMATCH", "log_gates.shape", ToString(shape.shape), "must be [H, Sk] or [B, H, Sk]");
  }
  ForgetGateSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.log_gates, reader.WeightValues("log_gates", message.log_gates()));
  if (shape.rank() == 3) settings.batch = shape.shape[0];
  settings.num_heads = shape.shape[shape.rank() - 2];
  settings.keys = shape.shape[shape.rank() - 1];
  if (message.has_cu_seqlens()) {
    POSENC_ASSIGN_OR_RETURN(settings.cu_seqlens, ReadBounds(reader, message.cu_seqlens()));
  }
  return settings;
}

NopeSettings ReadNope(const v1::Nope& message) {
  return {message.has_num_heads() ? std::optional(message.num_heads()) : std::nullopt};
}

// Stores the settings in the method, or prefixes the error's field with the method's name.
template <class Settings>
absl::Status Put(std::string_view name, absl::StatusOr<Settings> settings, BiasMethod* method) {
  if (!settings.ok()) return Within(name, settings.status());
  method->settings = *std::move(settings);
  return absl::OkStatus();
}

absl::Status ReadSettings(const Reader& reader, const v1::BiasMethod& message, BiasMethod* method) {
  switch (message.method_case()) {
    case v1::BiasMethod::METHOD_NOT_SET:
    case v1::BiasMethod::kModel: return absl::OkStatus();
    case v1::BiasMethod::kAlibi: return Put("alibi", ReadAlibi(reader, message.alibi()), method);
    case v1::BiasMethod::kT5: method->settings = ReadT5(message.t5()); return absl::OkStatus();
    case v1::BiasMethod::kKerple: return Put("kerple", ReadKerple(message.kerple()), method);
    case v1::BiasMethod::kSandwich: return Put("sandwich", ReadSandwich(message.sandwich()), method);
    case v1::BiasMethod::kSwin:
      method->settings = SwinSettings{{message.swin().window_height(), message.swin().window_width()}};
      return absl::OkStatus();
    case v1::BiasMethod::kBeit: return Put("beit", ReadBeit(message.beit()), method);
    case v1::BiasMethod::kSwinV2: return Put("swin_v2", ReadSwinV2(reader, message.swin_v2()), method);
    case v1::BiasMethod::kNope: method->settings = ReadNope(message.nope()); return absl::OkStatus();
    case v1::BiasMethod::kForgetGate: return Put("forget_gate", ReadForgetGate(reader, message.forget_gate()), method);
    case v1::BiasMethod::kFire: return Put("fire", ReadFire(reader, message.fire()), method);
  }
  __builtin_unreachable();
}

void Write(std::monostate, v1::BiasMethod*) {}
void Write(const AlibiSettings& settings, v1::BiasMethod* message) { WriteAlibi(settings, message->mutable_alibi()); }
void Write(const T5Settings& settings, v1::BiasMethod* message) { WriteT5(settings, message->mutable_t5()); }
void Write(const KerpleSettings& settings, v1::BiasMethod* message) {
  v1::Kerple& kerple = *message->mutable_kerple();
  kerple.set_kernel(Name(settings.kernel, kKerpleKernels));
  kerple.mutable_a()->Assign(settings.a.begin(), settings.a.end());
  kerple.mutable_p()->Assign(settings.p.begin(), settings.p.end());
}
void Write(const SandwichSettings& settings, v1::BiasMethod* message) {
  v1::Sandwich& sandwich = *message->mutable_sandwich();
  sandwich.set_convention(Name(settings.convention, kSandwichConventions));
  sandwich.set_num_heads(settings.num_heads);
  if (settings.dim) sandwich.set_dim(*settings.dim);
  if (settings.base) sandwich.set_base(*settings.base);
}
void Write(const SwinSettings& settings, v1::BiasMethod* message) {
  message->mutable_swin()->set_window_height(settings.window.height);
  message->mutable_swin()->set_window_width(settings.window.width);
}
void Write(const BeitSettings& settings, v1::BiasMethod* message) {
  message->mutable_beit()->set_window_height(settings.window.height);
  message->mutable_beit()->set_window_width(settings.window.width);
  message->mutable_beit()->set_table(Name(settings.table, kBeitTables));
}
void Write(const SwinV2Settings& settings, v1::BiasMethod* message) {
  v1::SwinV2Bias& swin = *message->mutable_swin_v2();
  swin.set_window_height(settings.window.height);
  swin.set_window_width(settings.window.width);
  if (settings.pretrained_window) {
    swin.set_pretrained_window_height(settings.pretrained_window->height);
    swin.set_pretrained_window_width(settings.pretrained_window->width);
  }
  if (settings.hidden_weight.values.empty()) return;  // known from config.json only
  WriteMatrix(settings.hidden_weight, swin.mutable_hidden_weight());
  WriteVector(settings.hidden_bias, swin.mutable_hidden_bias());
  WriteMatrix(settings.output_weight, swin.mutable_output_weight());
}
void Write(const FireSettings& settings, v1::BiasMethod* message) {
  v1::Fire& fire = *message->mutable_fire();
  if (settings.c) fire.set_c(*settings.c);
  if (settings.threshold) fire.set_threshold(*settings.threshold);
  if (settings.epsilon) fire.set_epsilon(*settings.epsilon);
  WriteVector(settings.hidden_weight, fire.mutable_hidden_weight());
  WriteVector(settings.hidden_bias, fire.mutable_hidden_bias());
  WriteMatrix(settings.output_weight, fire.mutable_output_weight());
  WriteVector(settings.output_bias, fire.mutable_output_bias());
}
void Write(const ForgetGateSettings& settings, v1::BiasMethod* message) {
  v1::ForgetGate& gate = *message->mutable_forget_gate();
  TensorShape shape{DType::kFP32, {settings.num_heads, settings.keys}};
  if (settings.batch) shape.shape.insert(shape.shape.begin(), *settings.batch);
  WriteShape(shape, gate.mutable_log_gates());
  gate.mutable_log_gates()->set_data(settings.log_gates.data(), settings.log_gates.size() * sizeof(float));
  if (!settings.cu_seqlens) return;
  const auto count = static_cast<int64_t>(settings.cu_seqlens->size());
  WriteShape({DType::kINT64, {count}}, gate.mutable_cu_seqlens());
  gate.mutable_cu_seqlens()->set_data(settings.cu_seqlens->data(), count * sizeof(int64_t));
}
void Write(const NopeSettings& settings, v1::BiasMethod* message) {
  v1::Nope& nope = *message->mutable_nope();
  if (settings.num_heads) nope.set_num_heads(*settings.num_heads);
}

}  // namespace

T5Settings ReadT5(const v1::T5Bias& message) {
  T5Settings settings;
  if (message.has_num_buckets()) settings.num_buckets = message.num_buckets();
  if (message.has_max_distance()) settings.max_distance = message.max_distance();
  if (message.has_bidirectional()) settings.bidirectional = message.bidirectional();
  return settings;
}

void WriteT5(const T5Settings& settings, v1::T5Bias* message) {
  if (settings.num_buckets) message->set_num_buckets(*settings.num_buckets);
  if (settings.max_distance) message->set_max_distance(*settings.max_distance);
  if (settings.bidirectional) message->set_bidirectional(*settings.bidirectional);
}

absl::StatusOr<BiasTable> ReadBiasTable(const Reader& reader, std::string_view field, const v1::Tensor& tensor,
                                        std::string_view layout_field, v1::BiasTableLayout layout) {
  POSENC_ASSIGN_OR_RETURN(BiasTable table, reader.Weight(field, tensor));
  POSENC_ASSIGN_OR_RETURN(const bool heads_first,
                          (Choose<v1::BiasTableLayout, bool>(layout_field, layout,
                                                             {{v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS, false},
                                                              {v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS, true}})));
  return heads_first ? table : Turned(table);
}

absl::StatusOr<BiasMethod> ReadBiasMethod(const Reader& reader, const v1::BiasMethod& message) {
  BiasMethod method;
  POSENC_RETURN_IF_ERROR(ReadSettings(reader, message, &method));
  if (message.has_table()) {
    POSENC_ASSIGN_OR_RETURN(method.table,
                            ReadBiasTable(reader, "table", message.table(), "table_layout", message.table_layout()));
  } else if (message.table_layout() != v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "table_layout", "", "is read with a table only");
  }
  return method;
}

void WriteBiasMethod(const BiasMethod& method, v1::BiasMethod* message) {
  std::visit([&](const auto& settings) { Write(settings, message); }, method.settings);
  if (!method.table) return;
  WriteMatrix(*method.table, message->mutable_table());
  message->set_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
}

}  // namespace posenc::wire
