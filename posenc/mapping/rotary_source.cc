#include "posenc/mapping/rotary_source.h"

#include <fmt/format.h>

#include <unordered_map>

#include "posenc/base/fingerprint.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"

namespace posenc::wire {

namespace {

// Notes that the two elements of a pair have different angles.
void NoteNoRotation(ResolvedRotary* resolved) {
  if (!resolved->rotary || !resolved->rotary->differs_in_pair()) return;
  resolved->notes.push_back({"NOT_A_ROTATION", resolved->parameters_field,
                             "the two elements a, b of a pair have different angles, y_a = cos_a x_a - sin_a x_b, "
                             "y_b = cos_b x_b + sin_b x_a: this is no rotation, lengths are not kept, "
                             "and scores depend on both positions, not only on their difference"});
}

}  // namespace

absl::StatusOr<ResolvedRotary> ResolveRotary(const ModelLayers& layers, const Precision& precision,
                                             const Limits& limits, PlanSource plan_source) {
  ResolvedRotary resolved;
  resolved.precision = precision;
  resolved.layer_type = layers.layer_type;
  resolved.notes = layers.notes;
  resolved.scales_softmax = layers.scales_softmax;
  resolved.softmax_scale_factor = layers.softmax_scale_factor;
  resolved.whole_head = layers.whole_head;
  resolved.longest = layers.longest;
  resolved.original = layers.original;
  resolved.longest_field = layers.longest_field;
  resolved.window = layers.window;
  resolved.rotary_offset = layers.rotary_offset;
  if (layers.rotary) {
    auto rotary = Rotary::Create(*layers.rotary, resolved.precision.frequencies, limits, plan_source);
    if (!rotary.ok()) return InFile(layers, rotary.status());
    resolved.rotary = *std::move(rotary);
    resolved.parameters_field = layers.file;
    for (const FileField& field : layers.fields) {
      if (field.setting == "rope_parameters") resolved.parameters_field = field.path;
    }
    NoteNoRotation(&resolved);
  }
  return resolved;
}

absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySettings& settings,
                                             const Precision& precision) {
  ResolvedRotary resolved;
  resolved.precision = precision;
  POSENC_ASSIGN_OR_RETURN(RotarySettings read, ReadRotarySettings(reader, settings));
  resolved.parameters_field = settings.has_axial()               ? "axial"
                              : settings.has_given_frequencies() ? "given_frequencies"
                              : settings.has_given_table()       ? "given_table"
                                                                 : "rope_parameters";
  POSENC_ASSIGN_OR_RETURN(resolved.rotary, Rotary::Create(std::move(read), resolved.precision.frequencies,
                                                          reader.limits, reader.plan_source));
  NoteNoRotation(&resolved);
  return resolved;
}

absl::StatusOr<std::shared_ptr<const ModelLayers>> LayerOf(const Reader& reader, const ModelSource& model) {
  if (reader.plan_source != PlanSource::kCacheOnly) return CachedLayer(model, reader.limits);
  std::shared_ptr<const ModelLayers> found = FindCachedLayer(model, reader.limits);
  if (found == nullptr) return WouldBlock();
  return found;
}

absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySource& source,
                                             const v1::Precision& precision, std::string_view field) {
  const std::string path(field);
  const auto placed = [](absl::StatusOr<ResolvedRotary> resolved, const std::string& at) {
    if (!resolved.ok()) return absl::StatusOr<ResolvedRotary>(Within(at, resolved.status()));
    resolved->parameters_field = at + "." + resolved->parameters_field;
    return resolved;
  };
  switch (source.source_case()) {
    case v1::RotarySource::SOURCE_NOT_SET: break;
    case v1::RotarySource::kModel: {
      POSENC_ASSIGN_OR_RETURN(const ModelSource model, ReadModelSource(source.model(), path + ".model"));
      const auto found = LayerOf(reader, model);
      if (IsWouldBlock(found.status())) return found.status();
      if (!found.ok()) return Within(path + ".model", found.status());
      const ModelLayers& layers = **found;
      if (layers.bias) {
        return InvalidArgument(
            "UNSUPPORTED", fmt::format("{}.model.{}", path, layers.file), "",
            "must be of a model with a rotary embedding: it has a bias, use GenerateBias or AddBias");
      }
      POSENC_ASSIGN_OR_RETURN(const Precision read, ReadPrecision(precision, layers.precision));
      return placed(ResolveRotary(layers, read, reader.limits, reader.plan_source), path + ".model");
    }
    case v1::RotarySource::kSettings: {
      POSENC_ASSIGN_OR_RETURN(const Precision axes, ReadPrecision(precision, std::nullopt));
      return placed(ResolveRotary(reader, source.settings(), axes), path + ".settings");
    }
  }
  return InvalidArgument("MISSING", path, "", "must be given: model (a config.json) or settings");
}

void SettleLengthRule(const v1::RotarySource& source, const Rotary& rotary, Positions& positions,
                      std::vector<Note>* notes) {
  if (!source.has_model()) return;
  const bool is_absent = positions.scaling_length_rule == ScalingLengthRule::kUnspecified && positions.seq_len.empty();
  if (!rotary.NeedsSeqLen()) {
    positions.scaling_length_rule = ScalingLengthRule::kUnspecified;
    positions.seq_len.clear();
  } else if (is_absent && notes != nullptr && source.model().gguf().empty()) {
    positions.scaling_length_rule = ScalingLengthRule::kWholeBatch;
    notes->push_back({"DEFAULTED", "positions.scaling_length_rule",
                      "absent: the longest sequence of the batch sets the frequencies, as in transformers"});
  }
}

absl::Status SettleCacheIndex(const v1::RotarySource& source, const Rotary& rotary, Positions& positions,
                              std::vector<Note>* notes) {
  if (!rotary.ReadsCacheIndex()) {
    if (source.has_model()) positions.cache_index.reset();
    return absl::OkStatus();
  }
  const bool known = !std::holds_alternative<PositionIds>(positions.source) &&
                     !std::holds_alternative<PositionSegments>(positions.source);
  if (positions.cache_index || known) return absl::OkStatus();
  constexpr char kField[] = "positions.cache_index";
  if (!source.has_model()) {
    return InvalidArgument("MISSING", kField, "",
                           "must be given with ids or segments: q is multiplied by a factor of the index in the cache");
  }
  notes->push_back({"DEFAULTED", kField,
                    "absent: the model scales its queries by the index in the KV cache, and each token's position is "
                    "taken for it; they differ after padding"});
  return absl::OkStatus();
}

absl::Status KeepRotation(const v1::RotarySource& source, ResolvedRotary* resolved) {
  if (resolved->rotary && resolved->rotary->settings().query_scale && source.has_settings()) {
    return InvalidArgument("NOT_READ", "rotary.settings.query_scale", "",
                           "must be absent: it multiplies q alone, and is no part of the rotation");
  }
  if (!resolved->rotary || !resolved->rotary->rotates()) return HasNoFrequencies(source, *resolved, "rotary");
  resolved->rotary = resolved->rotary->WithoutQueryScale();
  for (Note& note : resolved->notes) {
    if (note.code == kQueryScaleNote) {
      note = {"NOT_PART_OF_ROTATION", note.field, "the model also multiplies its queries, by a factor of the position"};
    }
  }
  return absl::OkStatus();
}

absl::Status HasNoFrequencies(const v1::RotarySource& source, const ResolvedRotary& resolved, std::string_view field) {
  if (source.has_settings()) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.settings", field), "", "must have frequencies");
  }
  return InvalidArgument("UNSUPPORTED", fmt::format("{}.model", field), "",
                         fmt::format("must be of layers with a rotary embedding: layers of type \"{}\" have none",
                                     Quote(resolved.layer_type)));
}

absl::Status RequireOneAngle(const v1::RotarySource& source, const Rotary& rotary, std::string_view field) {
  const absl::Status status = rotary.CheckOneAngle();
  if (status.ok() || source.has_settings()) return Within(fmt::format("{}.settings", field), status);
  return Renamed(status, [field](const std::string&) { return fmt::format("{}.model", field); });
}

absl::Status OfParameters(const ResolvedRotary& resolved, const absl::Status& status) {
  const std::string field = DetailsOf(status).field;
  if (!field.starts_with("inv_freq") && field != "attention_scaling") return status;
  return Renamed(status, [&resolved](const std::string&) { return resolved.parameters_field; });
}

void WriteCommonInfo(const Precision& precision, const std::vector<Note>& notes, v1::AnswerInfo* info) {
  WritePrecision(precision, info->mutable_precision());
  info->set_device("cpu");
  info->set_numerics_version(kNumericsVersion);
  info->set_config_rules(kConfigRules);
  for (const Note& note : notes) {
    v1::Note* message = info->add_notes();
    message->set_code(note.code);
    message->set_field(note.field);
    message->set_message(note.message);
  }
}

void CopyInfo(const v1::AnswerInfo& info, v1::AnswerInfo* copy) {
  RequireMemory(static_cast<int64_t>(info.ByteSizeLong()));
  copy->CopyFrom(info);
}

std::vector<const RotaryPlan*> PlansOf(const TableRows& rows) {
  std::vector<const RotaryPlan*> plans;
  for (size_t n = 0; n < rows.entries(); ++n) plans.push_back(&rows.plan(static_cast<int64_t>(n)));
  return plans;
}

absl::Status CheckReturned(const std::vector<const RotaryPlan*>& plans, const Limits& limits) {
  int64_t values = 0;
  for (const RotaryPlan* plan : plans) values += static_cast<int64_t>(plan->inv_freq.size());
  if (plans.size() < 2 || values <= limits.max_plan_values) return absl::OkStatus();
  return TooLarge("hints.return_plan", fmt::format("{} frequencies of all sequences", values),
                  fmt::format("must be at most {} (max_plan_values)", limits.max_plan_values));
}

void WriteRotaryInfo(const ResolvedRotary& resolved, const std::vector<const RotaryPlan*>& plans, bool with_plan,
                     v1::AnswerInfo* info) {
  WriteCommonInfo(resolved.precision, resolved.notes, info);
  info->set_layer_type(resolved.layer_type);
  if (!resolved.rotary) return;
  const Rotary& rotary = *resolved.rotary;
  info->set_rotated(rotary.rotates());
  if (rotary.rotates()) {
    info->set_input_pairing(Name(rotary.input_pairing(), kPairings));
    info->set_output_pairing(Name(rotary.output_pairing(), kPairings));
  }
  info->set_rotary_dim(rotary.rotary_dim());

  Fingerprint fingerprint;
  fingerprint.Add("rotary").Add(info->precision().SerializeAsString());
  fingerprint.Add(int64_t{info->input_pairing()}).Add(int64_t{info->output_pairing()}).Add(rotary.rotary_dim());
  if (rotary.half_split_parts() != 1) fingerprint.Add("half_split_parts").Add(rotary.half_split_parts());
  if (rotary.heads() != 1) fingerprint.Add("heads").Add(rotary.heads());
  if (rotary.differs_in_pair()) fingerprint.Add("two entries in a pair");
  // Sequences of equal length share a plan, which can be much larger than the request: each is added once.
  std::unordered_map<int64_t, int64_t> added;
  for (const RotaryPlan* plan : plans) {
    v1::SequenceInfo* sequence = info->add_sequences();
    sequence->set_seq_len(plan->seq_len);
    sequence->set_attention_scaling(plan->attention_scaling);
    sequence->set_branch(plan->branch);
    const auto [at, is_new] = added.emplace(plan->seq_len, static_cast<int64_t>(added.size()));
    if (is_new) {
      plan->AddTo(fingerprint);
    } else {
      fingerprint.Add("plan").Add(at->second);
    }
  }
  if (const GivenTable* table = rotary.table()) {
    fingerprint.Add("table").Add(static_cast<int64_t>(table->dtype)).Add(table->rows);
    for (const auto& data : {table->cos, table->sin}) {
      fingerprint.Add(std::string_view(reinterpret_cast<const char*>(data->data()), data->size()));
    }
  }
  info->set_plan_fingerprint(fingerprint.Digest());
  if (!with_plan) return;
  v1::Plan* message = info->mutable_plan();
  WriteRotarySettings(rotary.settings(), message->mutable_rotary());
  message->set_softmax_scale_factor(1);
  for (const RotaryPlan* plan : plans) {
    v1::EffectiveFrequencies* frequencies = message->add_frequencies();
    RequireMemory(static_cast<int64_t>(plan->inv_freq.size() * sizeof(double) + plan->axis.size() * sizeof(int64_t)));
    frequencies->mutable_inv_freq()->Assign(plan->inv_freq.begin(), plan->inv_freq.end());
    frequencies->mutable_axis()->Assign(plan->axis.begin(), plan->axis.end());
    message->set_softmax_scale_factor(resolved.SoftmaxScaleFactor(*plan));
  }
}

}  // namespace posenc::wire
