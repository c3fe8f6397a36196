#include "posenc/mapping/bias_source.h"

#include <fmt/format.h>

#include "posenc/base/fingerprint.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/message_fingerprint.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/methods/bias/bias.h"

namespace posenc::wire {

namespace {

// Resolves Swin v2's network, whose window sizes its config.json gives. The precision is the model's. Errors name the
// field from "swin_v2" on.
absl::StatusOr<ResolvedBias> ResolveSwinV2(const Reader& reader, const v1::BiasMethod& method) {
  auto layers = SelectWeighted(reader, method.swin_v2().model(), Wanted::kRotaryOrBias);
  if (!layers.ok()) return Within("swin_v2", layers.status());
  if (!layers->bias || !std::holds_alternative<SwinV2Settings>(*layers->bias)) {
    return InvalidArgument("CONFLICT", "swin_v2.model.config_json", "swin_v2", "must be of a model with such a bias");
  }
  v1::BiasMethod said, filled = method;
  const PayloadsOfCopy payloads(reader.payloads, method, filled);
  BiasMethod of_model;
  of_model.settings = *layers->bias;
  WriteBiasMethod(of_model, &said);
  POSENC_RETURN_IF_ERROR(Within("swin_v2", FillFrom(said.swin_v2(), filled.mutable_swin_v2())));
  ResolvedBias resolved;
  resolved.precision = layers->precision;
  POSENC_ASSIGN_OR_RETURN(resolved.method, ReadBiasMethod({payloads, reader.limits, reader.plan_source}, filled));
  resolved.notes = std::move(layers->notes);
  const int64_t heads = std::get<SwinV2Settings>(resolved.method.settings).output_weight.rows;
  if (heads == layers->bias_heads) return resolved;
  return InvalidArgument("MISMATCH", "swin_v2.output_weight.shape", fmt::format("{} heads", heads),
                         fmt::format("must be {}, as in config.json", layers->bias_heads));
}

// Cuts off the rows of a model's whole table that the model does not read.
void KeepRowsRead(const ModelLayers& layers, BiasMethod& method) {
  if (layers.bias_table_rows == 0 || !method.table || method.table->columns != layers.bias_table_rows) return;
  const BiasTable& whole = *method.table;
  const int64_t columns = *std::get<T5Settings>(method.settings).num_buckets;
  const LargeBlocksMayBeRefused scope;
  BiasTable read{.rows = whole.rows, .columns = columns, .shared = whole.shared};
  read.values.reserve(whole.rows * columns);
  for (int64_t h = 0; h < whole.rows; ++h) {
    const auto begin = whole.values.begin() + h * whole.columns;
    read.values.insert(read.values.end(), begin, begin + columns);
  }
  method.table = std::move(read);
}

// Puts BiasMethod.position_mask, which belongs to the request, into the settings, which may be a model's.
absl::Status PutPositionMask(const Reader& reader, const v1::BiasMethod& message, BiasMethod& method) {
  if (!message.has_position_mask()) return absl::OkStatus();
  auto* alibi = std::get_if<AlibiSettings>(&method.settings);
  if (alibi == nullptr || alibi->form != AlibiForm::kBloom) {
    return InvalidArgument("NOT_READ", "position_mask", "",
                           "must be absent: only ALIBI_FORM_BLOOM and models with it read it");
  }
  if (alibi->position_mask) {
    return Against("alibi.position_mask",
                   InvalidArgument("CONFLICT", "position_mask", "", "must be absent with alibi.position_mask"));
  }
  POSENC_ASSIGN_OR_RETURN(alibi->position_mask, reader.Flags("position_mask", message.position_mask()));
  return absl::OkStatus();
}

absl::StatusOr<ResolvedBias> Resolve(const Reader& reader, const v1::BiasMethod& method, const v1::Precision& precision,
                                     std::string_view field) {
  if (method.swin_v2().has_model()) {
    auto resolved = ResolveSwinV2(reader, method);
    if (!resolved.ok()) return Within(field, resolved.status());
    POSENC_ASSIGN_OR_RETURN(resolved->precision, ReadPrecision(precision, resolved->precision));
    return resolved;
  }
  auto given = ReadBiasMethod(reader, method);
  if (!given.ok()) return Within(field, given.status());
  if (method.has_model()) {
    POSENC_ASSIGN_OR_RETURN(const ModelSource model, ReadModelSource(method.model(), fmt::format("{}.model", field)));
    const auto found = LayerOf(reader, model);
    if (IsWouldBlock(found.status())) return found.status();
    if (!found.ok()) return Within(field, Within("model", found.status()));
    const ModelLayers& layers = **found;
    if (!layers.bias) {
      return InvalidArgument("UNSUPPORTED", fmt::format("{}.model.{}", field, layers.file), "",
                             "must be of a model with a position bias: use ApplyRotary for a rotary embedding");
    }
    if (std::holds_alternative<SwinV2Settings>(*layers.bias)) {
      return InvalidArgument(
          "MISSING", fmt::format("{}.swin_v2.hidden_weight", field), "",
          "must be given: this model computes its bias with a network, set the weights and the model in swin_v2");
    }
    POSENC_ASSIGN_OR_RETURN(const Precision read, ReadPrecision(precision, layers.precision));
    ResolvedBias resolved = ResolveBias(layers, read);
    POSENC_RETURN_IF_ERROR(Within(field, Within("model", CheckBias(layers, reader.limits))));
    resolved.method.table = std::move(given->table);
    KeepRowsRead(layers, resolved.method);
    return resolved;
  }
  if (method.method_case() == v1::BiasMethod::METHOD_NOT_SET) {
    return InvalidArgument("MISSING", field, "",
                           "must be given: alibi, t5, kerple, sandwich, swin, beit, swin_v2, fire, forget_gate, nope "
                           "or model (a config.json)");
  }
  ResolvedBias resolved;
  POSENC_ASSIGN_OR_RETURN(resolved.precision, ReadPrecision(precision, std::nullopt));
  resolved.method = *std::move(given);
  return resolved;
}

}  // namespace

absl::StatusOr<ResolvedBias> ResolveBias(const Reader& reader, const v1::BiasMethod& method,
                                         const v1::Precision& precision, std::string_view field) {
  POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved, Resolve(reader, method, precision, field));
  POSENC_RETURN_IF_ERROR(Within(field, PutPositionMask(reader, method, resolved.method)));
  return resolved;
}

absl::Status InWordsOf(const v1::BiasMethod& method, const absl::Status& status) {
  if (!method.has_position_mask()) return status;
  return Renamed(status, [](const std::string& name) {
    constexpr std::string_view kMask = "method.alibi.position_mask";
    return name.starts_with(kMask) ? "method.position_mask" + name.substr(kMask.size()) : name;
  });
}

absl::Status CheckBias(const ModelLayers& layers, const Limits& limits) {
  BiasMethod method;
  method.settings = *layers.bias;
  const auto* swin = std::get_if<SwinV2Settings>(&method.settings);
  if (swin != nullptr && swin->hidden_weight.values.empty()) return absl::OkStatus();  // its weights are the request's
  return InFile(layers, Complete(method, limits));
}

ResolvedBias ResolveBias(const ModelLayers& layers, const Precision& precision) {
  ResolvedBias resolved;
  resolved.precision = precision;
  resolved.method.settings = *layers.bias;
  resolved.notes = layers.notes;
  return resolved;
}

void WriteBiasInfo(const BiasMethod& method, const Precision& precision, const std::vector<Note>& notes, BiasUse use,
                   const Matrix<double>* slopes, v1::AnswerInfo* info) {
  WriteCommonInfo(precision, notes, info);
  v1::Plan plan;
  WriteBiasMethod(method, plan.mutable_bias());
  InterruptionPoint();
  Fingerprint fingerprint;
  fingerprint.Add("bias");
  AddMessage(plan.bias(), fingerprint);
  fingerprint.Add(int64_t{info->precision().frequencies()});
  if (use == BiasUse::kAdded) {
    fingerprint.Add(int64_t{info->precision().table_dtype()}).Add(int64_t{info->precision().rounding()});
  }
  info->set_plan_fingerprint(fingerprint.Digest());
  if (slopes == nullptr) return;
  plan.set_softmax_scale_factor(1);
  RequireMemory(static_cast<int64_t>(slopes->values.size() * sizeof(double)));
  plan.mutable_slopes()->Assign(slopes->values.begin(), slopes->values.end());
  RequireMemory(2 * static_cast<int64_t>(plan.ByteSizeLong()));  // messages of different arenas are copied
  info->mutable_plan()->Swap(&plan);
}

}  // namespace posenc::wire
