#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "posenc/base/gguf.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/mapping/bias_source.h"
#include "posenc/mapping/field_differences.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/rotary/rotary_difference.h"
#include "posenc/service/compare_plans.h"
#include "posenc/service/explain.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

// Layers of one side that have the same settings, or settings that belong to no layer.
struct SettingsOfLayers {
  std::vector<uint32_t> layer_index;
  std::string layer_type;
  std::optional<Precision> model_precision;
  std::vector<Note> notes;
  ComparedPlan encoding;  // empty for layers without one
  std::optional<Rotary> rotary;
  // True if the model's class multiplies its softmax scale by the plan's factor. Absent: the settings have no model.
  std::optional<bool> scales_softmax;
  std::optional<double> softmax_scale_factor;            // replaces the plan's
  bool is_gguf = false;                                  // numbers are float32, and the weights' rows may be permuted
  std::vector<std::shared_ptr<const RotaryPlan>> plans;  // one, or one per sequence length

  const RotaryPlan& PlanAt(size_t length) const { return *plans[plans.size() == 1 ? 0 : length]; }
  // Settings without a model apply the factor as the other side's class does.
  double SoftmaxFactorAt(size_t length, const SettingsOfLayers& other) const {
    if (softmax_scale_factor) return *softmax_scale_factor;
    const bool scales = scales_softmax.value_or(other.scales_softmax.value_or(true));
    return scales ? PlanAt(length).softmax_scale_factor : 1;
  }
};

struct Side {
  std::vector<SettingsOfLayers> settings;
  bool by_layer = false;  // a whole model: its layers are compared with the other side's by index
};

void SetRotary(ResolvedRotary resolved, SettingsOfLayers* settings) {
  settings->rotary = std::move(resolved.rotary);
  if (settings->rotary) WriteRotarySettings(settings->rotary->settings(), settings->encoding.plan.mutable_rotary());
}

absl::StatusOr<Side> ReadModelSide(const v1::ModelConfig& model, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(ModelSource source, ReadModelSource(model, ""));
  source.wanted = Wanted::kAny;
  POSENC_ASSIGN_OR_RETURN(const std::vector<ModelLayers> all, ReadLayers(source, limits));
  Side side{.by_layer = model.layer_case() == v1::ModelConfig::LAYER_NOT_SET};
  for (const ModelLayers& layers : all) {
    SettingsOfLayers& settings = side.settings.emplace_back();
    settings.layer_index = layers.layer_index;
    settings.layer_type = layers.layer_type;
    settings.model_precision = layers.precision;
    settings.notes = layers.notes;
    settings.scales_softmax = layers.scales_softmax;
    settings.softmax_scale_factor = layers.softmax_scale_factor;
    settings.is_gguf = layers.file == kGguf;
    v1::AnswerInfo info;
    POSENC_ASSIGN_OR_RETURN(const bool explained, ExplainWithoutRotary(layers, kExactPrecision, limits, &info));
    if (explained) {
      settings.encoding = {std::move(*info.mutable_plan()), SizesOfWeights(layers)};
      continue;
    }
    POSENC_ASSIGN_OR_RETURN(ResolvedRotary resolved, ResolveRotary(layers, kExactPrecision, limits));
    if (resolved.rotary) POSENC_RETURN_IF_ERROR(InFile(layers, resolved.rotary->CheckOneAngle()));
    SetRotary(std::move(resolved), &settings);
  }
  return side;
}

absl::StatusOr<Side> ReadSide(const Reader& reader, const v1::ComparedSettings& message) {
  Side side;
  switch (message.subject_case()) {
    case v1::ComparedSettings::SUBJECT_NOT_SET: break;
    case v1::ComparedSettings::kModel: {
      auto model = ReadModelSide(message.model(), reader.limits);
      if (!model.ok()) return Within("model", model.status());
      return model;
    }
    case v1::ComparedSettings::kRotary: {
      auto resolved = ResolveRotary(reader, message.rotary(), kExactPrecision);
      if (!resolved.ok()) return Within("rotary", resolved.status());
      if (resolved->rotary) POSENC_RETURN_IF_ERROR(Within("rotary", resolved->rotary->CheckOneAngle()));
      SetRotary(*std::move(resolved), &side.settings.emplace_back());
      return side;
    }
    case v1::ComparedSettings::kBias: {
      POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved, ResolveBias(reader, message.bias(), v1::Precision(), "bias"));
      v1::AnswerInfo info;
      POSENC_RETURN_IF_ERROR(Within("bias", ExplainBias(std::move(resolved), reader.limits, &info)));
      v1::Plan& plan = side.settings.emplace_back().encoding.plan;
      plan = std::move(*info.mutable_plan());
      PrepareBiasPlan(&plan);
      return side;
    }
  }
  return InvalidArgument("MISSING", "subject", "", "must be given: model (a config.json), rotary or bias");
}

// `name`: path of the side's subject, with which errors of its settings begin.
absl::Status PlanSide(const v1::CompareRequest& request, std::string_view name, const Limits& limits,
                      int64_t* values_left, Side* side) {
  for (SettingsOfLayers& settings : side->settings) {
    if (!settings.rotary) continue;
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths,
                            LengthsToExplain(request.seq_len(), *settings.rotary, limits, values_left));
    for (const int64_t length : lengths) {
      auto plan = settings.rotary->Plan(length);
      if (!plan.ok()) return Within(name, plan.status());
      settings.plans.push_back(*std::move(plan));
    }
  }
  return absl::OkStatus();
}

// Settings to compare with each other, and the layers that they apply to. One side may be null: only the other side has
// these layers.
struct Group {
  const SettingsOfLayers *a = nullptr, *b = nullptr;
  std::vector<uint32_t> layers_a, layers_b;
};

Group WholeGroup(const SettingsOfLayers* a, const SettingsOfLayers* b) {
  Group group{a, b};
  if (a != nullptr) group.layers_a = a->layer_index;
  if (b != nullptr) group.layers_b = b->layer_index;
  return group;
}

// Returns a group for each pair of settings that share layers, by layer index.
std::vector<Group> GroupByIndex(const Side& a, const Side& b) {
  std::map<uint32_t, std::pair<const SettingsOfLayers*, const SettingsOfLayers*>> by_layer;
  for (const SettingsOfLayers& settings : a.settings) {
    for (const uint32_t layer : settings.layer_index) by_layer[layer].first = &settings;
  }
  for (const SettingsOfLayers& settings : b.settings) {
    for (const uint32_t layer : settings.layer_index) by_layer[layer].second = &settings;
  }
  std::vector<Group> groups;
  std::map<std::pair<const SettingsOfLayers*, const SettingsOfLayers*>, size_t> group_of;
  for (const auto& [layer, settings] : by_layer) {
    if (layer % 4096 == 0) InterruptionPoint();
    const auto [known, is_new] = group_of.try_emplace(settings, groups.size());
    if (is_new) groups.push_back({settings.first, settings.second});
    Group& group = groups[known->second];
    if (group.a != nullptr) group.layers_a.push_back(layer);
    if (group.b != nullptr) group.layers_b.push_back(layer);
  }
  return groups;
}

// Returns a group for each layer type, for files that do not give the number of layers.
std::vector<Group> GroupByType(const Side& a, const Side& b) {
  const auto has_type = [](const SettingsOfLayers& wanted) {
    return [&wanted](const SettingsOfLayers& settings) { return settings.layer_type == wanted.layer_type; };
  };
  std::vector<Group> groups;
  for (const SettingsOfLayers& settings : a.settings) {
    const auto found = std::find_if(b.settings.begin(), b.settings.end(), has_type(settings));
    groups.push_back(WholeGroup(&settings, found == b.settings.end() ? nullptr : &*found));
  }
  for (const SettingsOfLayers& settings : b.settings) {
    if (std::none_of(a.settings.begin(), a.settings.end(), has_type(settings))) {
      groups.push_back(WholeGroup(nullptr, &settings));
    }
  }
  return groups;
}

std::vector<Group> GroupLayers(const Side& a, const Side& b) {
  const auto are_numbered = [](const Side& side) {
    return std::none_of(side.settings.begin(), side.settings.end(),
                        [](const SettingsOfLayers& settings) { return settings.layer_index.empty(); });
  };
  if (a.by_layer && b.by_layer) {
    if (are_numbered(a) && are_numbered(b)) return GroupByIndex(a, b);
    if (a.settings.size() > 1 && b.settings.size() > 1) return GroupByType(a, b);
  }
  std::vector<Group> groups;
  for (const SettingsOfLayers& settings_a : a.settings) {
    for (const SettingsOfLayers& settings_b : b.settings) groups.push_back(WholeGroup(&settings_a, &settings_b));
  }
  return groups;
}

std::string MethodOf(const SettingsOfLayers& settings) {
  const auto name = [](const google::protobuf::Message& message, const char* oneof) {
    const auto* field =
        message.GetReflection()->GetOneofFieldDescriptor(message, message.GetDescriptor()->FindOneofByName(oneof));
    return std::string(field == nullptr ? "none" : field->name());
  };
  const v1::Plan& plan = settings.encoding.plan;
  if (plan.has_bias()) return name(plan.bias(), "method");
  if (plan.has_relative()) return name(plan.relative(), "method");
  return name(plan, "settings");
}

bool SamePairing(const Rotary& a, const Rotary& b) {
  const bool splits = a.input_pairing() == Pairing::kHalfSplit || a.output_pairing() == Pairing::kHalfSplit;
  return a.input_pairing() == b.input_pairing() && a.output_pairing() == b.output_pairing() &&
         (!splits || a.half_split_parts() == b.half_split_parts());
}

// True if both embeddings pair and place the elements of a head alike. The conversion to GGUF permutes the rows of
// weights for the pairing that llama.cpp has for the architecture, so a difference of kinds of files is none.
bool SameLayout(const SettingsOfLayers& a, const SettingsOfLayers& b) {
  return a.rotary->rotary_dim() == b.rotary->rotary_dim() && a.rotary->axes() == b.rotary->axes() &&
         (a.is_gguf != b.is_gguf || SamePairing(*a.rotary, *b.rotary));
}

// True if both multiply q alike. A GGUF has float32 numbers and knows positions only.
bool SameQueryScale(const SettingsOfLayers& a, const SettingsOfLayers& b) {
  const auto &scale_a = a.rotary->settings().query_scale, &scale_b = b.rotary->settings().query_scale;
  if (!scale_a || !scale_b) return scale_a.has_value() == scale_b.has_value();
  const bool mixed = a.is_gguf != b.is_gguf;
  const auto same = [mixed](std::optional<double> x, std::optional<double> y) {
    return x == y || (mixed && x && y && static_cast<float>(*x) == static_cast<float>(*y));
  };
  return scale_a->function == scale_b->function && same(scale_a->attn_scale, scale_b->attn_scale) &&
         same(scale_a->floor_scale, scale_b->floor_scale) &&
         same(scale_a->llama_4_scaling_beta, scale_b->llama_4_scaling_beta) &&
         same(scale_a->original_max_position_embeddings, scale_b->original_max_position_embeddings) &&
         same(scale_a->seq_length, scale_b->seq_length) &&
         (mixed || scale_a->position_source == scale_b->position_source);
}

void Write(const RotaryDifference& difference, const PlannedRotary& a, const PlannedRotary& b,
           v1::RotaryComparison* message) {
  message->set_a_attention_scaling(a.plan->attention_scaling);
  message->set_b_attention_scaling(b.plan->attention_scaling);
  message->set_differing_pairs(static_cast<int64_t>(difference.pairs.size()));
  if (!difference.pairs.empty()) {
    const size_t first = difference.pairs[0];
    v1::PairDifference* pair = message->mutable_first_pair();
    pair->set_pair(static_cast<int64_t>(first));
    if (first < a.pairs()) pair->set_a_inv_freq(a.inv_freq(first));
    if (first < b.pairs()) pair->set_b_inv_freq(b.inv_freq(first));
    if (first < a.pairs()) pair->set_a_axis(a.axis(first));
    if (first < b.pairs()) pair->set_b_axis(b.axis(first));
  }
  if (difference.first_position) message->set_first_position(*difference.first_position);
  message->set_searched_positions(difference.searched_positions);
  for (const auto& at : difference.at) {
    v1::PositionDifference* position = message->add_positions();
    position->set_position(at.position);
    position->set_largest_difference(at.difference);
    position->set_pair(static_cast<int64_t>(at.pair));
  }
}

void AddNote(const std::string& code, const std::string& field, const std::string& text, v1::LayerComparison* message) {
  v1::Note* note = message->add_notes();
  note->set_code(code);
  note->set_field(field);
  note->set_message(text);
}

// `tolerated`: largest relative difference of numbers that count as the same. `first_position`: where the tables differ
// nevertheless.
void NoteFloat32Numbers(double tolerated, std::optional<int64_t> first_position, v1::LayerComparison* message) {
  std::string text = "frequencies below 2^-64 count as 0: a GGUF stops a pair by a large divisor";
  if (tolerated > 0) {
    text = fmt::format(
        "numbers that differ by at most {:.2g} of their size count as the same (limit 2^-20): a GGUF has float32",
        tolerated);
  }
  if (first_position) text += fmt::format("; the float32 tables differ, first at position {}", *first_position);
  AddNote("FLOAT32_NUMBERS", "", text, message);
}

// Compares at each sequence length. Sets `same` of each entry.
absl::Status CompareLengths(const v1::CompareRequest& request, const SettingsOfLayers& a, const SettingsOfLayers& b,
                            int64_t* entries_left, WorkPool& pool, const Cancellation& cancelled,
                            v1::LayerComparison* message) {
  const bool by_length = a.rotary->NeedsSeqLen() || b.rotary->NeedsSeqLen();
  const size_t lengths = by_length ? request.seq_len_size() : 1;
  const double tolerance = a.is_gguf != b.is_gguf ? kFloat32Tolerance : 0;
  double tolerated = 0;
  std::optional<int64_t> first_position;  // of those that are the same
  for (size_t n = 0; n < lengths; ++n) {
    const PlannedRotary planned_a{&*a.rotary, &a.PlanAt(n)}, planned_b{&*b.rotary, &b.PlanAt(n)};
    POSENC_ASSIGN_OR_RETURN(const RotaryDifference difference,
                            CompareRotary(planned_a, planned_b, tolerance, entries_left, pool, cancelled));
    v1::RotaryComparison* rotary = message->add_rotary();
    if (by_length) rotary->set_seq_len(request.seq_len(static_cast<int>(n)));
    Write(difference, planned_a, planned_b, rotary);
    rotary->set_a_softmax_scale_factor(a.SoftmaxFactorAt(n, b));
    rotary->set_b_softmax_scale_factor(b.SoftmaxFactorAt(n, a));
    tolerated = std::max(tolerated, difference.tolerated);
    rotary->set_same(difference.same() && SameWithin(tolerance, rotary->a_softmax_scale_factor(),
                                                     rotary->b_softmax_scale_factor(), &tolerated));
    if (rotary->same() && rotary->has_first_position()) {
      first_position = std::min(first_position.value_or(rotary->first_position()), rotary->first_position());
    }
  }
  if (tolerated > 0 || first_position) NoteFloat32Numbers(tolerated, first_position, message);
  return absl::OkStatus();
}

// Adds the notes that `side` has and `other` lacks.
void AddNotesOfOne(const std::string& name, const SettingsOfLayers& side, const SettingsOfLayers& other,
                   v1::LayerComparison* message) {
  for (const Note& note : side.notes) {
    if (note.code == kQueryScaleNote) continue;  // for calls that rotate; the fields say what differs
    const bool in_both = std::any_of(other.notes.begin(), other.notes.end(), [&note](const Note& its) {
      return its.code == note.code && its.field == note.field && its.message == note.message;
    });
    if (!in_both) AddNote(note.code, note.field.empty() ? name : name + "." + note.field, note.message, message);
  }
}

void AddNotes(const SettingsOfLayers& a, const SettingsOfLayers& b, bool lacks_weights, v1::LayerComparison* message) {
  const auto &precision_a = a.model_precision, &precision_b = b.model_precision;
  if (precision_a && precision_b &&
      (precision_a->frequencies != precision_b->frequencies || precision_a->table_dtype != precision_b->table_dtype ||
       precision_a->rounding != precision_b->rounding)) {
    AddNote("MODEL_PRECISIONS_DIFFER", "",
            "the models' classes round in different places (model_precision); exact values were compared", message);
  }
  if (lacks_weights) {
    AddNote("WEIGHTS_NOT_COMPARED", "", "the method's learned weights are not given on both sides", message);
  }
  if (a.is_gguf != b.is_gguf && a.rotary && b.rotary && !SamePairing(*a.rotary, *b.rotary)) {
    AddNote("PAIRING_NOT_COMPARED", "",
            "the files pair elements differently, each as its own weights do: the conversion to GGUF permutes them",
            message);
  }
  AddNotesOfOne("a", a, b, message);
  AddNotesOfOne("b", b, a, message);
}

// Adds the factor of q that only one side has.
void AppendQueryScale(const SettingsOfLayers& a, const SettingsOfLayers& b, v1::LayerComparison* message) {
  v1::RotarySettings left, right;
  const v1::Plan &plan_a = a.encoding.plan, &plan_b = b.encoding.plan;
  if (plan_a.rotary().has_query_scale()) *left.mutable_query_scale() = plan_a.rotary().query_scale();
  if (plan_b.rotary().has_query_scale()) *right.mutable_query_scale() = plan_b.rotary().query_scale();
  AppendFieldDifferences(left, right, "", message->mutable_fields());
}

void Describe(const SettingsOfLayers& settings, const std::vector<uint32_t>& layers, v1::ComparedLayers* message) {
  message->mutable_layer_index()->Assign(layers.begin(), layers.end());
  message->set_layer_type(settings.layer_type);
  message->set_method(MethodOf(settings));
  if (settings.model_precision) WritePrecision(*settings.model_precision, message->mutable_model_precision());
}

absl::Status CompareGroup(const v1::CompareRequest& request, const Group& group, int64_t* entries_left, WorkPool& pool,
                          const Cancellation& cancelled, v1::LayerComparison* message) {
  if (group.a != nullptr) Describe(*group.a, group.layers_a, message->mutable_a());
  if (group.b != nullptr) Describe(*group.b, group.layers_b, message->mutable_b());
  if (group.a == nullptr || group.b == nullptr) return absl::OkStatus();
  const SettingsOfLayers &a = *group.a, &b = *group.b;
  bool lacks_weights = false;
  if (message->a().method() != message->b().method()) {
    AppendDifference("method", message->a().method(), message->b().method(), message->mutable_fields());
    AppendQueryScale(a, b, message);
  } else if (a.rotary && b.rotary) {
    POSENC_RETURN_IF_ERROR(CompareLengths(request, a, b, entries_left, pool, cancelled, message));
    message->set_same(SameLayout(a, b) && SameQueryScale(a, b) &&
                      std::all_of(message->rotary().begin(), message->rotary().end(),
                                  [](const v1::RotaryComparison& comparison) { return comparison.same(); }));
    if (!message->same()) {
      AppendFieldDifferences(a.encoding.plan.rotary(), b.encoding.plan.rotary(), "", message->mutable_fields());
    }
  } else {
    RequireMemory(6 * static_cast<int64_t>(a.encoding.plan.ByteSizeLong() + b.encoding.plan.ByteSizeLong()));  // copies
    message->set_same(ComparePlans(message->a().method(), a.encoding, b.encoding, &lacks_weights, message));
    if (!message->same() && SameSoftmax(a.encoding.plan, b.encoding.plan)) {
      AddNote(
          "SAME_SOFTMAX", "alibi.form",
          "the forms differ by a constant per query for keys up to the query, which softmax cancels: causal attention "
          "is the same",
          message);
    }
  }
  AddNotes(a, b, lacks_weights, message);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::CompareRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::CompareResponse* response) {
  POSENC_RETURN_IF_ERROR(CheckLengthsToExplain(request.seq_len()));
  const Reader reader{payloads, limits};
  const auto sides = std::make_shared<std::pair<Side, Side>>();
  auto a = ReadSide(reader, request.a());
  if (!a.ok()) return Within("a", a.status());
  auto b = ReadSide(reader, request.b());
  if (!b.ok()) return Within("b", b.status());
  *sides = {*std::move(a), *std::move(b)};
  int64_t values_left = limits.max_plan_values;
  POSENC_RETURN_IF_ERROR(
      PlanSide(request, request.a().has_model() ? "a.model" : "a.rotary", limits, &values_left, &sides->first));
  POSENC_RETURN_IF_ERROR(
      PlanSide(request, request.b().has_model() ? "b.model" : "b.rotary", limits, &values_left, &sides->second));
  Job job;
  job.decide = [&request, sides, response](WorkPool& pool, const Cancellation& cancelled) -> absl::Status {
    int64_t entries_left = kMostComparedEntries;
    response->set_same(true);
    for (const Group& group : GroupLayers(sides->first, sides->second)) {
      InterruptionPoint();
      v1::LayerComparison* comparison = response->add_layers();
      POSENC_RETURN_IF_ERROR(CompareGroup(request, group, &entries_left, pool, cancelled, comparison));
      if (!comparison->same()) response->set_same(false);
    }
    return absl::OkStatus();
  };
  return job;
}

}  // namespace posenc::wire
