#include "posenc/mapping/bias_method.h"

#include <fmt/format.h>

#include "posenc/mapping/fields.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::wire {

template <>
inline constexpr EnumPairs<v1::KerpleKernel, KerpleKernel> kEnumPairs<KerpleKernel> = {
    {v1::KERPLE_KERNEL_LOG, KerpleKernel::kLog},
    {v1::KERPLE_KERNEL_POWER, KerpleKernel::kPower},
};
template <>
inline constexpr EnumPairs<v1::SandwichConvention, SandwichConvention> kEnumPairs<SandwichConvention> = {
    {v1::SANDWICH_CONVENTION_PAPER, SandwichConvention::kPaper},
    {v1::SANDWICH_CONVENTION_SNIPPET, SandwichConvention::kSnippet},
};
template <>
inline constexpr EnumPairs<v1::BeitTable, BeitTable> kEnumPairs<BeitTable> = {
    {v1::BEIT_TABLE_PLAIN, BeitTable::kPlain},
    {v1::BEIT_TABLE_TRANSFORMERS, BeitTable::kTransformers},
};

namespace {

absl::StatusOr<SwinV2Settings> ReadSwinV2(const Reader& reader, const v1::SwinV2Bias& message) {
  if (message.has_pretrained_window_height() != message.has_pretrained_window_width()) {
    return InvalidArgument(
        "MISSING", message.has_pretrained_window_height() ? "pretrained_window_width" : "pretrained_window_height", "",
        "must be given: pretrained_window_height and pretrained_window_width go together");
  }
  return Read<SwinV2Settings>(reader, message);
}

absl::StatusOr<ForgetGateSettings> ReadForgetGate(const Reader& reader, const v1::ForgetGate& message) {
  if (!message.has_log_gates()) return InvalidArgument("MISSING", "log_gates", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("log_gates", message.log_gates()));
  if (shape.rank() != 2 && shape.rank() != 3) {
    return InvalidArgument("MISMATCH", "log_gates.shape", ToString(shape.shape), "must be [H, Sk] or [B, H, Sk]");
  }
  const auto gates = static_cast<int64_t>(reader.payloads.Size(message.log_gates()) / SizeOf(shape.dtype));
  if (gates > reader.limits.max_bias_values) {  // Complete() checks, too, but only once they are read
    return TooLarge("log_gates", fmt::format("{} values", gates),
                    fmt::format("must be at most {} (max_bias_values)", reader.limits.max_bias_values));
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
    case v1::BiasMethod::kT5: return Put("t5", Read<T5Settings>(reader, message.t5()), method);
    case v1::BiasMethod::kKerple: return Put("kerple", Read<KerpleSettings>(reader, message.kerple()), method);
    case v1::BiasMethod::kSandwich: return Put("sandwich", Read<SandwichSettings>(reader, message.sandwich()), method);
    case v1::BiasMethod::kSwin: return Put("swin", Read<SwinSettings>(reader, message.swin()), method);
    case v1::BiasMethod::kBeit: return Put("beit", Read<BeitSettings>(reader, message.beit()), method);
    case v1::BiasMethod::kSwinV2: return Put("swin_v2", ReadSwinV2(reader, message.swin_v2()), method);
    case v1::BiasMethod::kForgetGate: return Put("forget_gate", ReadForgetGate(reader, message.forget_gate()), method);
    case v1::BiasMethod::kNope: return Put("nope", Read<NopeSettings>(reader, message.nope()), method);
    case v1::BiasMethod::kFire: return Put("fire", Read<FireSettings>(reader, message.fire()), method);
  }
  __builtin_unreachable();
}

void WriteForgetGate(const ForgetGateSettings& settings, v1::ForgetGate* gate) {
  TensorShape shape{DType::kFP32, {settings.num_heads, settings.keys}};
  if (settings.batch) shape.shape.insert(shape.shape.begin(), *settings.batch);
  WriteShape(shape, gate->mutable_log_gates());
  WriteData({reinterpret_cast<const char*>(settings.log_gates.data()), settings.log_gates.size() * sizeof(float)},
            gate->mutable_log_gates());
  if (!settings.cu_seqlens) return;
  const auto count = static_cast<int64_t>(settings.cu_seqlens->size());
  WriteShape({DType::kINT64, {count}}, gate->mutable_cu_seqlens());
  WriteData({reinterpret_cast<const char*>(settings.cu_seqlens->data()), count * sizeof(int64_t)},
            gate->mutable_cu_seqlens());
}

}  // namespace

absl::Status ReadBiasTable(const Reader& reader, std::string_view field, const v1::Tensor* tensor,
                           v1::BiasTableLayout layout, std::optional<BiasTable>* table) {
  const std::string layout_field = fmt::format("{}_layout", field);
  if (tensor == nullptr) {
    if (layout == v1::BIAS_TABLE_LAYOUT_UNSPECIFIED) return absl::OkStatus();
    return InvalidArgument("NOT_READ", layout_field, "", "must be absent without a table");
  }
  POSENC_ASSIGN_OR_RETURN(*table, reader.Weight(field, *tensor));
  POSENC_ASSIGN_OR_RETURN(const bool heads_first,
                          (Choose<v1::BiasTableLayout, bool>(layout_field, layout,
                                                             {{v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS, false},
                                                              {v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS, true}})));
  if (!heads_first) *table = Turned(**table);
  return absl::OkStatus();
}

absl::StatusOr<BiasMethod> ReadBiasMethod(const Reader& reader, const v1::BiasMethod& message) {
  BiasMethod method;
  POSENC_RETURN_IF_ERROR(ReadSettings(reader, message, &method));
  POSENC_RETURN_IF_ERROR(ReadBiasTable(reader, "table", message.has_table() ? &message.table() : nullptr,
                                       message.table_layout(), &method.table));
  return method;
}

void WriteBiasMethod(const BiasMethod& method, v1::BiasMethod* message) {
  const auto write = [&]<class Settings>(const Settings& settings) {
    if constexpr (std::is_same_v<Settings, AlibiSettings>) {
      WriteAlibi(settings, message->mutable_alibi());
    } else if constexpr (std::is_same_v<Settings, ForgetGateSettings>) {
      WriteForgetGate(settings, message->mutable_forget_gate());
    } else if constexpr (HasFields<Settings>) {
      WriteFields(settings, MutableMessage(NameOf(method), message));
    }
  };
  std::visit(write, method.settings);
  if (!method.table) return;
  WriteMatrix(*method.table, message->mutable_table());
  message->set_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
}

}  // namespace posenc::wire
