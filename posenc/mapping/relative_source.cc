#include "posenc/mapping/relative_source.h"

#include <fmt/format.h>

#include "posenc/mapping/relative_method.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/methods/relative/relative.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;

// Field of the method's own message, and the method's config.json; null if absent.
const FieldDescriptor& FieldOf(const v1::RelativeMethod& method) {
  return *v1::RelativeMethod::descriptor()->FindFieldByNumber(method.method_case());
}
const v1::ModelConfig* ModelOf(const v1::RelativeMethod& method) {
  switch (method.method_case()) {
    case v1::RelativeMethod::kShaw: return method.shaw().has_model() ? &method.shaw().model() : nullptr;
    case v1::RelativeMethod::kTransformerXl:
      return method.transformer_xl().has_model() ? &method.transformer_xl().model() : nullptr;
    case v1::RelativeMethod::kDeberta: return method.deberta().has_model() ? &method.deberta().model() : nullptr;
    case v1::RelativeMethod::kInkling: return method.inkling().has_model() ? &method.inkling().model() : nullptr;
    default: return nullptr;
  }
}

absl::Status CheckTable(std::string_view field, const Matrix<float>& table, int64_t rows, int64_t width) {
  if (table.rows == rows && (width == 0 || table.columns == width)) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", fmt::format("{}.shape", field), fmt::format("[{}, {}]", table.rows, table.columns),
      fmt::format("must be [{}, {}], as in config.json", rows, width == 0 ? std::string("..") : std::to_string(width)));
}

absl::Status CheckTables(const ModelTerms& model, const RelativeMethod& given) {
  if (const auto* shaw = std::get_if<ShawSettings>(&given)) {
    return CheckTable("shaw.table", shaw->table, model.rows, model.head_dim);
  }
  if (const auto* deberta = std::get_if<DebertaSettings>(&given)) {
    return CheckTable("deberta.relative_embeddings", deberta->relative_embeddings, model.rows, model.width);
  }
  if (const auto* inkling = std::get_if<InklingSettings>(&given)) {
    return CheckTable("inkling.projection", inkling->projection, model.rows, model.width);
  }
  const Projection& position = std::get<TransformerXlSettings>(given).position;
  if (!position.weight || model.width == 0) return absl::OkStatus();  // the method's Complete() reports it
  return CheckTable("transformer_xl.position.weight", *position.weight, model.heads * model.head_dim, model.width);
}

// Resolves all but the precision, which is the model's if there is one. Errors name the field from the method's name
// on.
absl::StatusOr<ResolvedTerms> Resolve(const Reader& reader, const v1::RelativeMethod& method) {
  ResolvedTerms resolved;
  const v1::ModelConfig* model = ModelOf(method);
  if (model == nullptr) {
    POSENC_ASSIGN_OR_RETURN(resolved.method, ReadRelativeMethod(reader, method));
    return resolved;
  }
  const FieldDescriptor& field = FieldOf(method);
  auto layers = SelectWeighted(reader, *model, Wanted::kTerms);
  if (!layers.ok()) return Within(field.name(), layers.status());
  resolved.model = std::move(layers->terms);
  resolved.notes = std::move(layers->notes);
  resolved.precision = layers->precision;
  v1::RelativeMethod said, filled = method;
  const PayloadsOfCopy payloads(reader.payloads, method, filled);
  WriteRelativeMethod(resolved.model->settings, &said);
  if (said.method_case() != method.method_case()) {
    return InvalidArgument("CONFLICT", fmt::format("{}.model.config_json", field.name()), field.name(),
                           fmt::format("must be of a model with this method: this one's attention has {}",
                                       NameOf(resolved.model->settings)));
  }
  const auto& reflection = *filled.GetReflection();
  const absl::Status status = FillFrom(reflection.GetMessage(said, &field), reflection.MutableMessage(&filled, &field));
  if (!status.ok()) return Within(field.name(), status);
  POSENC_ASSIGN_OR_RETURN(resolved.method, ReadRelativeMethod({payloads, reader.limits, reader.plan_source}, filled));
  POSENC_RETURN_IF_ERROR(CheckTables(*resolved.model, resolved.method));
  return resolved;
}

absl::Status ReadPrecisionOf(const v1::Precision& precision, ResolvedTerms* resolved) {
  const auto of_model = resolved->model ? std::optional(resolved->precision) : std::nullopt;
  POSENC_ASSIGN_OR_RETURN(resolved->precision, ReadPrecision(precision, of_model));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedTerms> ResolveTerms(const Reader& reader, const v1::RelativeMethod& method,
                                           const v1::Precision& precision) {
  auto resolved = Resolve(reader, method);
  if (!resolved.ok()) return Within("method", resolved.status());
  POSENC_RETURN_IF_ERROR(ReadPrecisionOf(precision, &*resolved));
  return resolved;
}

absl::StatusOr<ResolvedTerms> ResolveValues(const Reader& reader, const v1::Shaw& shaw,
                                            const v1::Precision& precision) {
  v1::RelativeMethod method;
  *method.mutable_shaw() = shaw;
  const PayloadsOfCopy payloads(reader.payloads, shaw, method.shaw());
  POSENC_ASSIGN_OR_RETURN(ResolvedTerms resolved, Resolve({payloads, reader.limits, reader.plan_source}, method));
  POSENC_RETURN_IF_ERROR(ReadPrecisionOf(precision, &resolved));
  if (!resolved.model || resolved.model->has_values) return resolved;
  return InvalidArgument("UNSUPPORTED", "shaw.model.config_json", "",
                         "must be of a model that adds a relative term to its values");
}

absl::Status CheckCall(const ModelTerms& model, const RelativeScoresCall& call) {
  if (const auto* xl = std::get_if<TransformerXlSettings>(&call.method)) {
    const bool has = model.has_biases;
    const bool position_fits = xl->position_bias.has_value() == has;
    if (!position_fits || (call.content && xl->content_bias.has_value() != has)) {
      return InvalidArgument(
          has ? "MISSING" : "CONFLICT",
          position_fits ? "method.transformer_xl.content_bias" : "method.transformer_xl.position_bias", "",
          has ? "must be given: the model has this bias" : "must not be set: the model has no such bias");
    }
  }
  if (call.q.rank() != 4) return absl::OkStatus();  // RelativeScores::Create rejects it
  const int64_t heads = call.q.shape[call.layout == Layout::kBHSD ? 1 : 2];
  if (call.q.shape[3] != model.head_dim) {
    return InvalidArgument("MISMATCH", "q.shape", fmt::format("{} channels", call.q.shape[3]),
                           fmt::format("must be {}, as in config.json", model.head_dim));
  }
  const std::optional<int64_t>& start = call.geometry.head_start;
  if (start ? *start <= model.heads - heads : heads == model.heads) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", "q.shape", fmt::format("{} heads", heads),
      fmt::format("must be {}, as in config.json; for a part of the heads set geometry.head_start", model.heads));
}

}  // namespace posenc::wire
