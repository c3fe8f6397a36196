#include "tools/posenc/request_flags.h"

#include <algorithm>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/wire/model_file.h"
#include "tools/files/json.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/onnx.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

// Returns the help of a field that only some scalings read.
std::string ReadBy(std::string_view field, std::string_view help = "") {
  std::string text(help);
  for (const RopeMethod& method : RopeMethods()) {
    if (!Reads(method, field)) continue;
    text += text.empty() ? "" : text == help ? "; " : ", ";
    text += method.rope_type;
  }
  return text;
}

}  // namespace

std::string ByLength(const std::string& help) {
  std::string types;
  for (const RopeMethod& method : RopeMethods()) {
    if (!method.needs_seq_len(RopeParameters())) continue;
    types += types.empty() ? "" : ", ";
    types += method.rope_type;
  }
  return types + ": " + help;
}

void ModelFlags::Add(CLI::App& app, bool argument) {
  app.add_option(argument ? "model,--model" : "--model", path_,
                 "A model's config.json or GGUF, a folder that has one, an ONNX graph, or -: standard input")
      ->type_name("PATH")
      ->group("Model");
  AddFieldFlags(
      app, "Model", &config_,
      {{"component", "Part of the model, such as \"text\", if the file has several; of an ONNX graph: a node"},
       {"layer_type", "Layer type, such as \"sliding_attention\", if layers differ"},
       {"layer_index", "Index of a layer, from 0, if layers differ"}});
}

absl::Status ModelFlags::CheckUnused() const {
  return IsSet(config_) ? UsageError(FirstFlagOf(config_) + ": needs --model") : absl::OkStatus();
}

absl::StatusOr<v1::ModelConfig> ModelFlags::Get() const {
  if (!read_) {
    POSENC_ASSIGN_OR_RETURN(read_, ReadModelFile(path_, Streams::kRead));
  }
  v1::ModelConfig config = *read_;
  config.MergeFrom(config_);
  return config;
}

absl::Status ModelFlags::PutBeside(google::protobuf::Message* weights) const {
  if (!given()) return CheckUnused();
  if (weights == nullptr) return UsageError("--model: also give the model's weights, by the flags of its method");
  const auto* field = weights->GetDescriptor()->FindFieldByName("model");
  if (field == nullptr)
    return UsageError(absl::StrCat("--model: no config.json describes ", weights->GetDescriptor()->name()));
  auto& model = static_cast<v1::ModelConfig&>(*weights->GetReflection()->MutableMessage(weights, field));
  POSENC_ASSIGN_OR_RETURN(model, Get());
  return absl::OkStatus();
}

void RotaryFlags::Add(CLI::App& app, bool model_as_argument) {
  model_.Add(app, model_as_argument);
  AddFieldFlags(app, "Pairing", &pairings_,
                {{"input_pairing", "Pairing of the inputs q and k; with --model: overrides the model's"},
                 {"output_pairing", "Pairing of the outputs; default: that of the inputs"}});
  AddFieldFlags(app, "Settings, in place of --model", &settings_,
                {{"rotary_dim", "Number of elements of a head row that rotate"},
                 {"head_dim", "Elements of a head row, of which --partial-rotary-factor is the share that rotates"},
                 {"max_position_embeddings", ReadBy("max_position_embeddings", "Model's length in tokens")},
                 {"half_split_parts", "Equal parts of the rotated elements, each half-split on its own; default 1"},
                 {"table_pairing", "Pairing of the angles, if not the input's: no rotation then"}});
  AddFieldFlags(app, "Settings, in place of --model", &parameters_,
                {{"rope_type", "default, linear, yarn, ...: `posenc info` lists them"},
                 {"rope_theta", "Default 10000"},
                 {"partial_rotary_factor", "rotary_dim = int(head_dim * N)"},
                 {"factor", ReadBy("factor", "Scaling factor")},
                 {"original_max_position_embeddings", ReadBy("original_max_position_embeddings", "In tokens")},
                 {"attention_factor", ReadBy("attention_factor", "Multiplies cos and sin")},
                 {"beta_fast", ReadBy("beta_fast", "Default 32")},
                 {"beta_slow", ReadBy("beta_slow", "Default 1")},
                 {"mscale", ReadBy("mscale")},
                 {"mscale_all_dim", ReadBy("mscale_all_dim")},
                 {"truncate", ReadBy("truncate", "Default true")},
                 {"low_freq_factor", ReadBy("low_freq_factor")},
                 {"high_freq_factor", ReadBy("high_freq_factor")},
                 {"short_factor", ReadBy("short_factor")},
                 {"long_factor", ReadBy("long_factor")},
                 {"longrope_branch", ReadBy("longrope_branch", "List of factors to use; default: by sequence length")},
                 {"alpha", ReadBy("alpha")},
                 {"frequency_dim", "Width in the frequency formula, if it is not rotary_dim"},
                 {"negate_angle", "Whether to rotate in the opposite direction; default false"},
                 {"resonance", "Whether wavelengths are rounded to whole positions (Resonance RoPE); default false"},
                 {"mixed_b", ReadBy("mixed_b")},
                 {"ext_factor", ReadBy("ext_factor", "Default 1")},
                 {"attn_factor", ReadBy("attn_factor", "Default 1")},
                 {"freq_factors", ReadBy("freq_factors")},
                 {"max_freq", ReadBy("max_freq", "Default 10")},
                 {"mrope_section", "M-RoPE: number of pairs of each position axis"},
                 {"mrope_order", "M-RoPE: order of the axes' pairs"}});
  AddOtherFieldFlags(app, "Settings, in place of --model", &parameters_);
  app.add_option("--rope-parameters", parameters_json_, "The formula's parameters as one JSON object")
      ->type_name("JSON")
      ->group("Settings, in place of --model");
  AddFieldFlags(app, "Settings, in place of --model", &frequencies_,
                {{"inv_freq", "Frequencies in radians per position, in place of a formula"},
                 {"attention_scaling", "With --inv-freq: multiplies cos and sin"},
                 {"axis", "With --inv-freq: position axis of each pair"},
                 {"heads", "With --inv-freq: number of heads, each with its own frequencies", "--frequency-heads"},
                 {"axes", "With --inv-freq: number of axes that each pair rotates by", "--frequency-axes"}});
  AddFieldFlags(app, "Settings, in place of --model", &axial_,
                {{"axial", "One rotary embedding per position axis, side by side, in place of a formula"}});
  AddFieldFlags(
      app, "Settings, in place of --model", &table_,
      {{"cos", "Cosines by position, [rows, width], or by token, [B, S, width], in place of a formula", "--given-cos"},
       {"sin", "Sines, in the shape of the cosines", "--given-sin"},
       {"form", "One value per pair (half-width) or one per element", "--given-form"},
       {"per_head", "Whether the tables have an axis of heads before the last", "--given-per-head"}});
  AddFieldFlags(app, "Settings, in place of --model", &xpos_,
                {{"scale_base", "xPos; default 512"}, {"centre", "xPos: position whose scale is 1; no default"}});
  AddFieldFlags(app, "Settings, in place of --model", &query_scale_,
                {{"function", "Multiplies q by a function of the position: llama4, ministral3, beam, logn, inkling",
                  "--query-scale"},
                 {"attn_scale", "--query-scale llama4"},
                 {"floor_scale", "--query-scale llama4: tokens"},
                 {"llama_4_scaling_beta", "--query-scale ministral3"},
                 {"original_max_position_embeddings", "--query-scale ministral3: tokens",
                  "--query-scale-original-max-position-embeddings"},
                 {"seq_length", "--query-scale logn: tokens", "--query-scale-seq-length"},
                 {"log_scaling_alpha", "--query-scale inkling"},
                 {"log_scaling_n_floor", "--query-scale inkling: tokens"},
                 {"position_source", "--query-scale: position ids, the default, or the index in the cache"},
                 {"rounds_factor", "--query-scale: whether its factor is rounded to q's type; default false"}});
}

bool RotaryFlags::given() const {
  if (model_.given() || !parameters_json_.empty() || IsSet(pairings_)) return true;
  const auto messages = SettingsMessages();
  return std::any_of(messages.begin(), messages.end(), [](const auto* message) { return IsSet(*message); });
}

void RotaryFlags::AddMissing(Missing* missing) const {
  if (given()) return;
  if (const absl::Status unused = model_.CheckUnused(); !unused.ok()) {
    return missing->Add(true, std::string(unused.message()) + " PATH");  // "--layer-type: needs --model PATH"
  }
  missing->Add(true, "--model PATH, or settings: --rope-type, --rotary-dim and --input-pairing");
}

std::vector<const google::protobuf::Message*> RotaryFlags::SettingsMessages() const {
  return {&settings_, &parameters_, &frequencies_, &axial_, &table_, &xpos_, &query_scale_};
}

absl::StatusOr<v1::RotarySettings> RotaryFlags::Settings() const {
  v1::RotarySettings settings = settings_;
  settings.MergeFrom(pairings_);
  if (IsSet(xpos_)) *settings.mutable_xpos() = xpos_;
  if (IsSet(query_scale_)) *settings.mutable_query_scale() = query_scale_;
  const bool formula = IsSet(parameters_) || !parameters_json_.empty();
  if (formula + IsSet(frequencies_) + IsSet(axial_) + IsSet(table_) > 1) {
    return UsageError("give only one of: a formula's parameters, --inv-freq, --axial, --given-cos with --given-sin");
  }
  if (IsSet(frequencies_)) {
    *settings.mutable_given_frequencies() = frequencies_;
    return settings;
  }
  if (IsSet(axial_)) {
    *settings.mutable_axial() = axial_.axial();
    return settings;
  }
  if (IsSet(table_)) {
    *settings.mutable_given_table() = table_;
    return settings;
  }
  if (!formula && IsSet(query_scale_)) return settings;  // nothing rotates
  v1::RopeParameters parameters;
  if (!parameters_json_.empty()) {
    const absl::Status status = FromJson(parameters_json_, &parameters);
    if (!status.ok()) {
      return UsageError("--rope-parameters: " + std::string(status.message()) +
                        "; its fields are the flags' names with underscores; \"type\" in older files is rope_type");
    }
    std::vector<const google::protobuf::FieldDescriptor*> by_flags;
    parameters_.GetReflection()->ListFields(parameters_, &by_flags);
    for (const auto* field : by_flags) {
      const bool present = field->is_repeated() ? parameters.GetReflection()->FieldSize(parameters, field) > 0
                                                : parameters.GetReflection()->HasField(parameters, field);
      if (present) return UsageError(FlagName(field->name()) + ": --rope-parameters sets it already");
    }
  }
  parameters.MergeFrom(parameters_);
  *settings.mutable_rope_parameters() = parameters;
  return settings;
}

absl::Status RotaryFlags::CheckNoSettings() const {
  for (const google::protobuf::Message* message : SettingsMessages()) {
    if (IsSet(*message)) return UsageError(FirstFlagOf(*message) + ": not allowed with --model, which sets it");
  }
  return parameters_json_.empty() ? absl::OkStatus() : UsageError("--rope-parameters: not allowed with --model");
}

absl::Status RotaryFlags::CheckPathOnly() const {
  POSENC_RETURN_IF_ERROR(CheckNoSettings());
  for (const google::protobuf::Message* message :
       std::initializer_list<const google::protobuf::Message*>{&model_.choice(), &pairings_}) {
    if (IsSet(*message)) return UsageError(FirstFlagOf(*message) + ": not with an ONNX graph");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RotarySource> RotaryFlags::Get() const {
  v1::RotarySource source;
  if (!model_.given()) {
    POSENC_RETURN_IF_ERROR(model_.CheckUnused());
    Missing missing;
    AddMissing(&missing);
    POSENC_RETURN_IF_ERROR(missing.Get());
    POSENC_ASSIGN_OR_RETURN(*source.mutable_settings(), Settings());
    return source;
  }
  POSENC_RETURN_IF_ERROR(CheckNoSettings());
  if (IsOnnxPath(model_.path())) {
    v1::ModelConfig layer = model_.choice();
    layer.clear_component();
    if (IsSet(layer))
      return UsageError(FirstFlagOf(layer) + ": not with an ONNX graph; --component chooses a node of it");
    POSENC_ASSIGN_OR_RETURN(*source.mutable_settings(), RotaryOfOnnx(model_.path(), model_.choice().component()));
    source.mutable_settings()->MergeFrom(pairings_);
    return source;
  }
  POSENC_ASSIGN_OR_RETURN(*source.mutable_model(), model_.Get());
  source.mutable_model()->set_input_pairing(pairings_.input_pairing());
  source.mutable_model()->set_output_pairing(pairings_.output_pairing());
  return source;
}

void PrecisionFlags::Add(CLI::App& app) {
  AddFieldFlags(
      app, "Precision", &precision_,
      {{"preset",
        "Preset of --frequencies, --table-dtype and --rounding. exact, the default: each result is rounded once from "
        "its exact value. model: the bits of transformers' own code in PyTorch on a CPU, apart from PyTorch's cosines "
        "and sines, which differ in the last place now and then",
        "--precision"}});
  AddFieldFlags(app, "Precision", &axes_,
                {{"frequencies", "Arithmetic of the frequencies; give all three flags, or --precision instead"},
                 {"table_dtype", "Type of cos and sin when they are multiplied with the data"},
                 {"rounding", "Round once at the end, or after each operation"}});
}

bool PrecisionFlags::given() const { return IsSet(precision_) || IsSet(axes_); }

absl::StatusOr<std::optional<v1::Precision>> PrecisionFlags::Get() const {
  if (IsSet(precision_) && IsSet(axes_)) return UsageError(FirstFlagOf(axes_) + ": not allowed with --precision");
  if (IsSet(precision_)) return precision_;
  if (!IsSet(axes_)) return std::nullopt;
  v1::Precision precision;
  *precision.mutable_axes() = axes_;
  return precision;
}

void AddPositionFlags(CLI::App& app, PositionKind kind, v1::Positions* positions) {
  constexpr char kGroup[] = "Positions";
  AddFieldFlags(app, kGroup, positions, {{"offset", "Tokens have positions N, N+1, ..."}});
  if (kind == PositionKind::kSequences) {
    AddFieldFlags(app, kGroup, positions, {{"offsets", "One --offset per sequence"}});
  }
  AddFieldFlags(app, kGroup, positions,
                {{"ids", "One position per token", "--positions"},
                 {"segments", "Runs of evenly spaced positions, or grids such as 1x64x64"},
                 {"axis_dimension", "Dimension of --positions that holds the axes of a position"}});
  if (kind == PositionKind::kSequences) {
    AddFieldFlags(app, kGroup, positions,
                  {{"cu_seqlens", "With --layout thd: start of each packed sequence, then the end of the last"},
                   {"cache_index", "--query-scale by the index in the cache: that of the first token"},
                   {"scaling_length_rule", ByLength("length that sets the frequencies; with --seq-len: given"),
                    "--scaling-length,--scaling-length-rule"}});
  }
  AddFieldFlags(app, kGroup, positions,
                {{"seq_len", ByLength("length that sets the frequencies, one for all or one per sequence")}});
}

void AddMissingPositions(const v1::Positions& positions, Missing* missing) {
  missing->Add(positions.source_case() == v1::Positions::SOURCE_NOT_SET,
               "the tokens' positions: --offset N, --positions or --segments");
}

int64_t CountRows(const v1::Positions& positions, int64_t count) {
  if (positions.has_ids()) {
    // Rows are the last dimension, or the one before the axes; the server refuses ids of several sequences.
    const int after = positions.axis_dimension() == v1::AXIS_DIMENSION_LAST ? 2 : 1;
    const int dimension = positions.ids().shape_size() - after;
    return dimension >= 0 ? positions.ids().shape(dimension) : 0;
  }
  if (!positions.has_segments()) return count;
  int64_t rows = 0;
  for (const v1::PositionSegment& segment : positions.segments().segment()) {
    int64_t in_segment = segment.line().count();
    if (segment.has_grid()) {
      in_segment = 1;
      for (const int64_t size : segment.grid().size()) in_segment *= size;
    }
    rows += in_segment;
  }
  return rows;
}

void CompletePositions(v1::Positions* positions) {
  if (positions->seq_len_size() > 0 && positions->scaling_length_rule() == v1::SCALING_LENGTH_RULE_UNSPECIFIED) {
    positions->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
  }
}

}  // namespace posenc::command
