#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "posenc/wire/model_file.h"
#include "tools/files/json.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/messages.h"
#include "tools/posenc/onnx.h"
#include "tools/posenc/report.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct CompareFlags {
  std::string a, b;  // paths
  v1::ModelConfig choice_a, choice_b;
  v1::CompareRequest request;
};

// True if the text is a JSON object with an object "rotary" or "bias".
bool HoldsSettings(const std::string& text) {
  nlohmann::json object;
  if (!ParseJson(text, "", &object).ok() || !object.is_object()) return false;
  const auto has = [&object](const char* name) { return object.contains(name) && object[name].is_object(); };
  return has("rotary") || has("bias");
}

absl::Status ReadSide(const std::string& path, const v1::ModelConfig& choice, v1::ComparedSettings* side) {
  POSENC_ASSIGN_OR_RETURN(v1::ModelConfig model, ReadModelFile(path, Streams::kRead));
  const std::string text = model.config_json();
  if (!HoldsSettings(text)) {
    *side->mutable_model() = std::move(model);
    side->mutable_model()->MergeFrom(choice);
    return absl::OkStatus();
  }
  if (IsSet(choice)) {
    return UsageError(FirstFlagOf(choice) + ": only with a config.json, but " + path + " holds settings");
  }
  const absl::Status status = FromJson(text, side);
  return status.ok() ? absl::OkStatus() : absl::InvalidArgumentError(path + ": " + std::string(status.message()));
}

// Returns "layers 0-4, 6" or "layer type full_attention"; empty for settings.
std::string LayersText(const v1::ComparedLayers& layers) {
  if (layers.layer_index_size() > 0) return absl::StrCat("layers ", Ranges(layers.layer_index()));
  return layers.layer_type().empty() ? "" : absl::StrCat("layer type ", layers.layer_type());
}

std::string GroupTitle(const v1::LayerComparison& group) {
  const std::string a = LayersText(group.a()), b = LayersText(group.b());
  std::string title = a;
  if (a.empty() && b.empty()) title = "all layers";
  if (a != b && !a.empty()) title = a + " of a";
  if (a != b && !b.empty()) absl::StrAppend(&title, a.empty() ? "" : " and ", b, " of b");
  return title;
}

std::string BothText(const std::string& a, const std::string& b) {
  return absl::StrCat("a: ", a.empty() ? "not set" : a, "   b: ", b.empty() ? "not set" : b);
}

std::string FrequencyText(bool present, double frequency) { return present ? Decimal(frequency) : "no such pair"; }

// Appends where the tables differ. They may do so with settings that count as the same.
void AppendTables(const v1::RotaryComparison& rotary, Rows* rows) {
  if (rotary.positions().empty() && !rotary.has_first_position()) {
    if (!rotary.same()) {
      rows->emplace_back("tables", absl::StrCat("no difference at ", rotary.searched_positions(), " positions"));
    }
    return;
  }
  rows->emplace_back("first position", rotary.has_first_position()
                                           ? absl::StrCat(rotary.first_position())
                                           : absl::StrCat("none below ", rotary.searched_positions()));
  for (const v1::PositionDifference& at : rotary.positions()) {
    rows->emplace_back(absl::StrCat("difference at ", at.position()),
                       absl::StrFormat("%.3g, in pair %d", at.largest_difference(), at.pair()));
  }
}

// Appends the settings that differ.
void AppendRotary(const v1::RotaryComparison& rotary, Rows* rows) {
  if (rotary.a_attention_scaling() != rotary.b_attention_scaling()) {
    rows->emplace_back("attention scaling",
                       BothText(Decimal(rotary.a_attention_scaling()), Decimal(rotary.b_attention_scaling())));
  }
  if (rotary.a_softmax_scale_factor() != rotary.b_softmax_scale_factor()) {
    rows->emplace_back("softmax factor",
                       BothText(Decimal(rotary.a_softmax_scale_factor()), Decimal(rotary.b_softmax_scale_factor())));
  }
  if (rotary.has_first_pair()) {
    const v1::PairDifference& pair = rotary.first_pair();
    rows->emplace_back("differing pairs", absl::StrCat(rotary.differing_pairs(), ", the first is pair ", pair.pair()));
    rows->emplace_back("inv_freq of it", BothText(FrequencyText(pair.has_a_inv_freq(), pair.a_inv_freq()),
                                                  FrequencyText(pair.has_b_inv_freq(), pair.b_inv_freq())));
    if (pair.a_axis() != pair.b_axis()) {
      rows->emplace_back("axis of it", BothText(absl::StrCat(pair.a_axis()), absl::StrCat(pair.b_axis())));
    }
  }
}

void AppendSlopes(const v1::SlopeComparison& slopes, Rows* rows) {
  rows->emplace_back("differing heads",
                     absl::StrCat(slopes.differing_heads(), ", the first is head ", slopes.first_head()));
  rows->emplace_back("slope of it", BothText(Decimal(slopes.a_slope()), Decimal(slopes.b_slope())));
  for (const v1::DistanceDifference& at : slopes.distances()) {
    rows->emplace_back(absl::StrCat("difference at ", at.distance()),
                       absl::StrFormat("%.6g, in head %d", at.largest_difference(), at.head()));
  }
}

std::string GroupReport(const v1::LayerComparison& group) {
  std::string text = "\n" + GroupTitle(group);
  if (!group.has_a() || !group.has_b()) return text + ": the other side lacks these layers\n";
  if (group.a().layer_type() != group.b().layer_type()) {
    absl::StrAppend(&text, ", layer type ", BothText(group.a().layer_type(), group.b().layer_type()));
  }
  absl::StrAppend(&text, group.same() ? ": same" : ": different", group.same() ? " (" + group.a().method() + ")" : "",
                  "\n");
  Rows rows;
  for (const v1::FieldDifference& field : group.fields()) {
    rows.emplace_back(field.path(), BothText(InTypedValues(field.a()), InTypedValues(field.b())));
  }
  for (const v1::RotaryComparison& rotary : group.rotary()) {
    const bool differs = !rotary.same() || !rotary.positions().empty();
    if (rotary.seq_len() > 0 && (differs || !group.same())) {
      rows.emplace_back("at seq_len", absl::StrCat(rotary.seq_len(), differs ? "" : ": no difference"));
    }
    if (!rotary.same()) AppendRotary(rotary, &rows);
    AppendTables(rotary, &rows);
  }
  if (group.has_slopes()) AppendSlopes(group.slopes(), &rows);
  text += Aligned(rows, "  ");
  for (const v1::Note& note : group.notes()) {
    absl::StrAppend(&text, "  note: ", note.field().empty() ? "" : note.field() + ": ", note.message(), "\n");
  }
  return text;
}

bool HasNote(const v1::LayerComparison& group, std::string_view code) {
  return std::any_of(group.notes().begin(), group.notes().end(),
                     [code](const v1::Note& note) { return note.code() == code; });
}

// True if all that differs are constants per query, which softmax cancels.
bool SameSoftmax(const v1::CompareResponse& response) {
  return std::all_of(response.layers().begin(), response.layers().end(),
                     [](const v1::LayerComparison& group) { return group.same() || HasNote(group, "SAME_SOFTMAX"); });
}

std::string Report(const v1::CompareResponse& response) {
  int differing = 0;
  bool lacks_weights = false;
  for (const v1::LayerComparison& group : response.layers()) {
    differing += !group.same();
    lacks_weights |= HasNote(group, "WEIGHTS_NOT_COMPARED");
  }
  std::string text = "different: a and b do not give the same positional encoding";
  if (response.same()) {
    text = "same: a and b give the same positional encoding";
    if (lacks_weights) text += ", as far as can be said without the weights";
  } else if (SameSoftmax(response)) {
    text = "same in causal attention: the biases of a and b differ, but softmax cancels the difference";
  } else if (response.layers_size() > 1) {
    absl::StrAppend(&text, " in ", differing, " of ", response.layers_size(), " groups of layers");
  }
  text += "\n";
  for (const v1::LayerComparison& group : response.layers()) text += GroupReport(group);
  return text;
}

// Reads a side of a comparison with an ONNX graph. Of the graph, `choice` can name a node only, as its component.
absl::StatusOr<OnnxSide> ReadOnnxSide(const std::string& path, v1::ModelConfig choice) {
  OnnxSide side;
  if (!IsOnnxPath(path)) {
    POSENC_RETURN_IF_ERROR(ReadSide(path, choice, &side.other));
    return side;
  }
  side.graph = path;
  side.node = choice.component();
  choice.clear_component();
  if (IsSet(choice)) return UsageError(FirstFlagOf(choice) + ": not with an ONNX graph");
  return side;
}

absl::Status RunCompare(const CompareFlags& flags, Session& session) {
  Missing missing;
  missing.Add(flags.a.empty(), "FILE, one side of the comparison");
  missing.Add(flags.b.empty(), "FILE, the other side");
  POSENC_RETURN_IF_ERROR(missing.Get());
  if (IsOnnxPath(flags.a) || IsOnnxPath(flags.b)) {
    POSENC_ASSIGN_OR_RETURN(const OnnxSide a, ReadOnnxSide(flags.a, flags.choice_a));
    POSENC_ASSIGN_OR_RETURN(const OnnxSide b, ReadOnnxSide(flags.b, flags.choice_b));
    return CompareOnnx(a, b, {flags.request.seq_len().begin(), flags.request.seq_len().end()}, session);
  }
  v1::CompareRequest request = flags.request;
  POSENC_RETURN_IF_ERROR(ReadSide(flags.a, flags.choice_a, request.mutable_a()));
  POSENC_RETURN_IF_ERROR(ReadSide(flags.b, flags.choice_b, request.mutable_b()));
  POSENC_ASSIGN_OR_RETURN(const v1::CompareResponse response, session.backend().Compare(request));
  session.set_exit_code(response.same() ? kDone : SameSoftmax(response) ? kSameSoftmax : kNo);
  return session.json() ? PrintJson(session, response) : PrintVerdict(Report(response), session.exit_code());
}

}  // namespace

Subcommand AddCompare(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "compare",
      "Whether two models (config.json, GGUF or ONNX) or settings give the same positional encoding, and where they "
      "differ.\n" +
          std::string(kExitCodes));
  const auto flags = std::make_shared<CompareFlags>();
  constexpr char kFile[] =
      "A config.json or GGUF, a folder that has one, an ONNX graph, -: standard input, or settings: a JSON object "
      "{\"rotary\": RotarySettings} or {\"bias\": BiasMethod} with the fields of the proto files";
  app->add_option("a", flags->a, kFile)->type_name("FILE");
  app->add_option("b", flags->b, "The other side, likewise")->type_name("FILE");
  AddFieldFlags(
      *app, "Model a", &flags->choice_a,
      {{"component", "Part of the model, e.g. text, if the file has several; of an ONNX graph: a node that rotates",
        "--a-component"},
       {"layer_type", "Layers to compare with all of b; absent: each with b's of its index", "--a-layer-type"},
       {"layer_index", "Layer to compare with all of b", "--a-layer-index"},
       {"input_pairing", "Pairing of q and k, if the file's model_type is not known", "--a-input-pairing"}});
  AddFieldFlags(*app, "Model b", &flags->choice_b,
                {{"component", "see --a-component", "--b-component"},
                 {"layer_type", "see --a-layer-type", "--b-layer-type"},
                 {"layer_index", "see --a-layer-index", "--b-layer-index"},
                 {"input_pairing", "see --a-input-pairing", "--b-input-pairing"}});
  AddFieldFlags(*app, "Lengths", &flags->request,
                {{"seq_len", ByLength("sequence lengths to compare at; required for these")}});
  return {app, [flags](Session& session) { return RunCompare(*flags, session); }};
}

}  // namespace posenc::command
