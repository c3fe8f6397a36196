#include "posenc/service/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/mapping/bias_source.h"
#include "posenc/mapping/embedding_method.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/relative_method.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"
#include "posenc/methods/embedding/encoding.h"
#include "posenc/positions/select.h"
#include "posenc/service/explain_reach.h"
#include "posenc/service/explain_text.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

// The longest length of the formula's first branch, and twice that.
google::protobuf::RepeatedField<int64_t> LengthOfEachBranch(const Rotary& rotary) {
  google::protobuf::RepeatedField<int64_t> lengths;
  if (!rotary.NeedsSeqLen()) return lengths;
  const auto& parameters = std::get<RopeParameters>(rotary.settings().frequencies);
  const auto length = parameters.original_max_position_embeddings ? parameters.original_max_position_embeddings
                                                                  : rotary.settings().max_position_embeddings;
  constexpr double kMost = 0x1p51;
  const auto first = static_cast<int64_t>(std::clamp(std::floor(length.value_or(1)), 1.0, kMost));
  lengths.Add(first);
  lengths.Add(2 * first);
  return lengths;
}

absl::Status ExplainRotary(const v1::ExplainRequest& request, const ResolvedRotary& resolved, const Limits& limits,
                           int64_t* values_left, v1::LayerExplanation* explanation) {
  v1::AnswerInfo* info = explanation->mutable_info();
  std::vector<std::shared_ptr<const RotaryPlan>> plans;
  if (resolved.rotary) {
    const bool given = request.seq_len_size() > 0;
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths,
                            LengthsToExplain(given ? request.seq_len() : LengthOfEachBranch(*resolved.rotary),
                                             *resolved.rotary, limits, values_left));
    for (int64_t length : lengths) {
      auto plan = resolved.rotary->Plan(length);
      if (!plan.ok()) return OfParameters(resolved, plan.status());
      plans.push_back(*std::move(plan));
    }
  }
  std::vector<const RotaryPlan*> pointers;
  for (const auto& plan : plans) pointers.push_back(plan.get());
  WriteRotaryInfo(resolved, pointers, true, info);
  for (const RotaryPlan* plan : pointers) {
    POSENC_RETURN_IF_ERROR(ExplainInWords(resolved, *plan, limits, explanation->add_text()));
  }
  return absl::OkStatus();
}

// Explains relative terms from config.json alone; the request has no weights.
void ExplainTerms(const ModelLayers& layers, const Precision& precision, v1::AnswerInfo* info) {
  WriteCommonInfo(precision, layers.notes, info);
  WriteRelativeMethod(layers.terms->settings, info->mutable_plan()->mutable_relative());
  info->mutable_plan()->set_softmax_scale_factor(1);
}

// Explains an encoding that is added to the input, without a learned table's values.
absl::Status ExplainEmbedding(const ModelLayers& layers, const Precision& precision, const Limits& limits,
                              v1::AnswerInfo* info) {
  if (auto settings = layers.sinusoidal) POSENC_RETURN_IF_ERROR(InFile(layers, Complete(*settings, limits)));
  WriteCommonInfo(precision, layers.notes, info);
  EmbeddingMethod method;
  if (layers.table) method = LearnedSettings{.offset = layers.table->offset, .resize = layers.table->resize};
  if (layers.sinusoidal) method = *layers.sinusoidal;
  if (layers.grid) method = *layers.grid;
  WriteEmbeddingPlan(method, info->mutable_plan());
  return absl::OkStatus();
}

// How the model's class counts positions, if not one by one: as the answer of Positions says it.
std::string HowItCounts(const ModelSource& source, const Limits& limits) {
  if (!source.gguf.empty()) return "";
  const auto parsed = source.parsed ? source.parsed : ParseConfigJson(source.config_json, limits).value_or(nullptr);
  if (parsed == nullptr) return "";
  const auto selected = SelectPositionRule(parsed->tree, source.component);
  if (!selected.ok() || selected->rule->model_type.empty()) return "";
  return fmt::format("Positions by {}: {}", selected->rule->model_type, selected->rule->sentence);
}

// Explains the source's part of the file.
absl::Status ExplainPart(const v1::ExplainRequest& request, const ModelSource& source, const Limits& limits,
                         int64_t* values_left, v1::ExplainResponse* response) {
  constexpr std::string_view kSubject = "model";
  const auto all = ReadLayers(source, limits);
  if (!all.ok()) return Within(kSubject, all.status());
  const std::string counts = HowItCounts(source, limits);
  for (const ModelLayers& layers : *all) {
    v1::LayerExplanation* explanation = response->add_layers();
    explanation->mutable_layer_index()->Assign(layers.layer_index.begin(), layers.layer_index.end());
    explanation->set_layer_type(layers.layer_type);
    explanation->set_component(source.component);
    v1::AnswerInfo* info = explanation->mutable_info();
    POSENC_ASSIGN_OR_RETURN(const Precision precision, ReadPrecision(request.precision(), layers.precision));
    const auto explained = ExplainWithoutRotary(layers, precision, limits, info);
    if (!explained.ok()) return Within(kSubject, explained.status());
    if (*explained) {
      const std::string reach = ReachWithoutRotary(layers);
      for (const std::string& sentence : {reach, reach.empty() ? "" : counts}) {
        if (sentence.empty()) continue;
        (explanation->text_size() == 0 ? explanation->add_text() : explanation->mutable_text(0))
            ->add_sentence(sentence);
      }
      continue;
    }
    auto resolved = ResolveRotary(layers, precision, limits);
    if (!resolved.ok()) return Within(kSubject, resolved.status());
    resolved->parameters_field = fmt::format("{}.{}", kSubject, resolved->parameters_field);
    POSENC_RETURN_IF_ERROR(ExplainRotary(request, *resolved, limits, values_left, explanation));
    if (explanation->text_size() == 0 || counts.empty()) continue;
    for (v1::ExplanationText& text : *explanation->mutable_text()) text.add_sentence(counts);
  }
  return absl::OkStatus();
}

// Explains the part that the request names, or every part of the file. A part that cannot be read is an entry with the
// error as its note, unless no part can be read.
absl::Status ExplainModel(const v1::ExplainRequest& request, const Limits& limits, v1::ExplainResponse* response) {
  int64_t values_left = limits.max_plan_values;
  POSENC_ASSIGN_OR_RETURN(ModelSource source, ReadModelSource(request.model(), "model"));
  source.wanted = Wanted::kAny;
  std::vector<std::string> components = {source.component};
  if (components[0].empty()) {
    POSENC_RETURN_IF_ERROR(Within("model", Parse(limits, &source)));
    auto all = ComponentsOf(source, limits);
    if (!all.ok()) return Within("model", all.status());
    if (!all->empty()) components = *std::move(all);
  }
  absl::Status first;
  bool any = false;
  for (const std::string& component : components) {
    InterruptionPoint();
    source.component = component;
    const int before = response->layers_size();
    const absl::Status status = ExplainPart(request, source, limits, &values_left, response);
    any |= status.ok();
    if (status.ok()) continue;
    if (first.ok()) first = status;
    if (components.size() == 1 || !absl::IsInvalidArgument(status)) return status;
    response->mutable_layers()->DeleteSubrange(before, response->layers_size() - before);
    const ErrorDetails details = DetailsOf(status);
    v1::LayerExplanation* failed = response->add_layers();
    failed->set_component(component);
    WriteCommonInfo(kExactPrecision, {{details.reason, details.field, std::string(status.message())}},
                    failed->mutable_info());
  }
  return any ? absl::OkStatus() : first;
}

absl::Status Explain(const v1::ExplainRequest& request, const Payloads& payloads, const Limits& limits,
                     v1::ExplainResponse* response) {
  POSENC_RETURN_IF_ERROR(CheckLengthsToExplain(request.seq_len()));
  switch (request.subject_case()) {
    case v1::ExplainRequest::SUBJECT_NOT_SET: break;
    case v1::ExplainRequest::kModel: return ExplainModel(request, limits, response);
    case v1::ExplainRequest::kRotary: {
      POSENC_ASSIGN_OR_RETURN(const Precision precision, ReadPrecision(request.precision(), std::nullopt));
      auto resolved = ResolveRotary({payloads, limits}, request.rotary(), precision);
      if (!resolved.ok()) return Within("rotary", resolved.status());
      resolved->parameters_field = "rotary." + resolved->parameters_field;
      int64_t values_left = limits.max_plan_values;
      return ExplainRotary(request, *resolved, limits, &values_left, response->add_layers());
    }
    case v1::ExplainRequest::kBias: {
      POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved,
                              ResolveBias({payloads, limits}, request.bias(), request.precision(), "bias"));
      return Within("bias", ExplainBias(std::move(resolved), limits, response->add_layers()->mutable_info()));
    }
  }
  return InvalidArgument("MISSING", "subject", "", "must be given: model (a config.json), rotary or bias");
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> ReadLayers(const ModelSource& source, const Limits& limits) {
  if (std::holds_alternative<std::monostate>(source.layer)) return ReadModel(source, limits);
  POSENC_ASSIGN_OR_RETURN(ModelLayers one, SelectLayer(source, limits));
  return std::vector<ModelLayers>{std::move(one)};
}

absl::StatusOr<bool> ExplainWithoutRotary(const ModelLayers& layers, const Precision& precision, const Limits& limits,
                                          v1::AnswerInfo* info) {
  if (layers.bias) {
    POSENC_RETURN_IF_ERROR(CheckBias(layers, limits));
    POSENC_RETURN_IF_ERROR(ExplainBias(ResolveBias(layers, precision), limits, info));
    return true;
  }
  if (!layers.terms && !layers.table && !layers.sinusoidal && !layers.grid) return false;
  if (layers.terms) {
    ExplainTerms(layers, precision, info);
  } else {
    POSENC_RETURN_IF_ERROR(ExplainEmbedding(layers, precision, limits, info));
  }
  return true;
}

absl::Status ExplainBias(ResolvedBias resolved, const Limits& limits, v1::AnswerInfo* info) {
  const auto* swin = std::get_if<SwinV2Settings>(&resolved.method.settings);
  const bool lacks_weights = swin != nullptr && swin->hidden_weight.values.empty();  // known from config.json only
  if (!lacks_weights) POSENC_RETURN_IF_ERROR(Complete(resolved.method, limits));
  Matrix<double> slopes;
  if (const auto* alibi = std::get_if<AlibiSettings>(&resolved.method.settings)) {
    slopes = AlibiSlopes(resolved.precision.frequencies, *alibi);
  }
  WriteBiasInfo(resolved.method, resolved.precision, resolved.notes, BiasUse::kAlone, &slopes, info);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> LengthsToExplain(const google::protobuf::RepeatedField<int64_t>& seq_len,
                                                      const Rotary& rotary, const Limits& limits,
                                                      int64_t* values_left) {
  if (!rotary.NeedsSeqLen()) return std::vector<int64_t>{0};
  if (seq_len.empty()) {
    return InvalidArgument("MISSING", "seq_len", "", "must be given: the frequencies depend on the sequence's length");
  }
  const auto values = int64_t{seq_len.size()} * rotary.width();
  *values_left -= values;
  if (*values_left < 0) {
    return TooLarge(
        "seq_len", fmt::format("{} frequencies, for {} lengths", limits.max_plan_values - *values_left, seq_len.size()),
        fmt::format("must give at most {} (max_plan_values), of all layer types", limits.max_plan_values));
  }
  return std::vector<int64_t>(seq_len.begin(), seq_len.end());
}

absl::Status CheckLengthsToExplain(const google::protobuf::RepeatedField<int64_t>& seq_len) {
  for (int n = 0; n < seq_len.size(); ++n) {
    InterruptionPointOfStep(n);
    if (seq_len[n] >= 1) continue;
    return InvalidArgument("OUT_OF_RANGE", fmt::format("seq_len[{}]", n), fmt::format("{}", seq_len[n]),
                           "must be at least 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> Prepare(const v1::ExplainRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::ExplainResponse* response) {
  POSENC_RETURN_IF_ERROR(Explain(request, payloads, limits, response));
  return Job();
}

}  // namespace posenc::wire
