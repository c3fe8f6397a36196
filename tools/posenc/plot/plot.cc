#include "tools/posenc/plot/plot.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "posenc/wire/model_file.h"
#include "tools/files/file_io.h"
#include "tools/posenc/embedding_flags.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

constexpr int kLeastSide = 200, kMostSide = 8000;  // pixels

// A positive number of the model's config.json, also of its text part; 0 if there is none.
double ModelNumber(const v1::ModelConfig& model, const char* name) {
  nlohmann::json json;
  if (!ParseJson(model.config_json(), "config_json", &json).ok() || !json.is_object()) return 0;
  for (const auto* object : {&json, json.contains("text_config") ? &json["text_config"] : &json}) {
    if (!object->is_object() || !object->contains(name) || !(*object)[name].is_number()) continue;
    return std::max(0.0, (*object)[name].get<double>());
  }
  return 0;
}

}  // namespace

std::string ModelName(const std::string& path) {
  if (path.empty() || IsStream(path)) return "";
  std::filesystem::path file = std::filesystem::path(path).lexically_normal();
  if (!file.has_filename()) file = file.parent_path();
  if (file.filename() == "config.json") {
    file = std::filesystem::absolute(file).parent_path();
    return file.filename().string();
  }
  const std::string extension = file.extension().string();
  return extension == ".json" || extension == ".gguf" ? file.stem().string() : file.filename().string();
}

std::string TypedName(const std::string& model, const v1::AnswerInfo& info) {
  std::string type = info.plan().rotary().rope_parameters().rope_type();
  if (type.empty() && info.plan().rotary().has_axial()) type = "axial";
  if (model.empty() || type.empty()) return model + type;
  return absl::StrCat(model, " (", type, ")");
}

std::string RotaryTitle(const std::string& what, const std::string& model, const v1::AnswerInfo& info) {
  const std::string name = TypedName(model, info);
  return name.empty() ? what : absl::StrCat(what, ": ", name);
}

std::vector<Mark> Lengths(const std::string& model, const v1::AnalyzeRequest& request, const v1::AnswerInfo& info) {
  const std::string of = model.empty() ? "" : model + ": ";
  const auto mark = [&of](const char* name, double length) {
    std::string digits = absl::StrFormat("%.0f", length);
    for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
    return Mark{length, absl::StrCat(of, name, ", ", digits)};
  };
  const v1::RopeParameters& parameters = info.plan().rotary().rope_parameters();
  double most = ModelNumber(request.rotary().model(), "max_position_embeddings");
  if (most == 0) most = info.plan().rotary().max_position_embeddings();
  const double original = parameters.original_max_position_embeddings();
  if (original <= 0) {
    if (most <= 0) return {};
    return {mark(parameters.has_factor() ? "max_position_embeddings" : "trained length", most)};
  }
  std::vector<Mark> marks = {mark("trained length", original)};
  const double extended = std::max(most, original * (parameters.has_factor() ? parameters.factor() : 1));
  if (extended > original) marks.push_back(mark("extended length", extended));
  return marks;
}

void AddMarks(std::vector<Mark> more, std::vector<Mark>* marks) {
  for (Mark& mark : more) {
    const auto same = std::find_if(marks->begin(), marks->end(), [&](const Mark& m) { return m.value == mark.value; });
    if (same == marks->end()) {
      marks->push_back(std::move(mark));
    } else {
      absl::StrAppend(&same->name, "; ", mark.name);
    }
  }
}

void PictureFlags::Add(CLI::App& app) {
  app.add_option("-o,--out,--output", path_,
                 "Output picture, FILE.png or FILE.svg; -: PNG on standard output; without it --json prints the "
                 "plotted numbers")
      ->type_name("FILE");
  app.add_option("--title", title_, "Title of the picture, in place of its own")->type_name("TEXT");
  app.add_option_function<std::string>(
         "--size",
         [this](const std::string& text) {
           const std::vector<std::string> sides = absl::StrSplit(text, 'x');
           if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &width_) || !absl::SimpleAtoi(sides[1], &height_) ||
               std::min(width_, height_) < kLeastSide || std::max(width_, height_) > kMostSide) {
             throw CLI::ValidationError(
                 "--size", absl::StrCat(text, " must be WIDTHxHEIGHT in pixels, each ", kLeastSide, " to ", kMostSide));
           }
         },
         "Width and height of the picture in pixels, such as 1200x600")
      ->type_name("WxH");
}

absl::Status PictureFlags::Check(const Session& session, Missing missing) const {
  missing.Add(path_.empty() && !session.json(), "an output: -o FILE.png or FILE.svg, or --json for the numbers");
  POSENC_RETURN_IF_ERROR(missing.Get());
  return path_.empty() ? absl::OkStatus() : FormatOf(path_).status();
}

absl::Status PictureFlags::DrawAndTell(const Session& session, const v1::AnswerInfo& info, const std::string& commands,
                                       const Canvas& canvas) const {
  POSENC_ASSIGN_OR_RETURN(const PictureFormat format, FormatOf(path_));
  POSENC_RETURN_IF_ERROR(Draw(commands, canvas, format, path_));
  if (!session.json()) {
    std::fprintf(session.reports_to_stderr() ? stderr : stdout, "%s: %d x %d\n", path_.c_str(), canvas.width,
                 canvas.height);
  }
  return PrintInfo(session, info);
}

void AnalysisFlags::Add(CLI::App& app) {
  rotary_.Add(app);
  AddSinusoidalFlags(app, &sinusoidal_);
  AddFieldFlags(app, "Lengths", &request_, {{"seq_len", ByLength("sequence length; required for these types")}});
  app.add_option("--overlay", overlay_,
                 "Another model, drawn in the same picture: its config.json or GGUF, or its folder")
      ->type_name("OTHER")
      ->group("Model");
}

Missing AnalysisFlags::WhatIsMissing() const {
  Missing missing;
  if (!IsSet(sinusoidal_)) rotary_.AddMissing(&missing);
  return missing;
}

absl::StatusOr<std::optional<v1::AnalyzeRequest>> AnalysisFlags::GetOverlay(const v1::AnalyzeRequest& request) const {
  if (overlay_.empty()) return std::nullopt;
  v1::AnalyzeRequest other = request;
  POSENC_ASSIGN_OR_RETURN(*other.mutable_rotary()->mutable_model(), ReadModelFile(overlay_, Streams::kRead));
  return other;
}

std::string AnalysisFlags::Title(const std::string& what, const v1::AnswerInfo& info) const {
  return RotaryTitle(what, name(), info);
}

absl::StatusOr<v1::AnalyzeRequest> AnalysisFlags::Get() const {
  v1::AnalyzeRequest request = request_;
  if (IsSet(sinusoidal_)) {
    if (rotary_.given()) return UsageError("give a rotary embedding (or --model) or a sinusoidal encoding, not both");
    *request.mutable_sinusoidal() = sinusoidal_;
  } else {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_rotary(), rotary_.Get());
  }
  request.mutable_hints()->set_return_plan(true);
  return request;
}

std::string Subject(const v1::AnswerInfo& info) {
  std::string text = absl::StrCat("rotary: ", SettingsLine(info.plan().rotary()));
  if (!info.layer_type().empty()) absl::StrAppend(&text, ", layer type ", info.layer_type());
  for (const v1::SequenceInfo& sequence : info.sequences()) {
    if (sequence.seq_len() > 0) absl::StrAppend(&text, ", seq_len ", sequence.seq_len());
  }
  return text;
}

std::string Subject(const v1::AnalyzeRequest& request, const v1::AnswerInfo& info) {
  if (request.has_sinusoidal()) return "sinusoidal: " + SettingsLine(request.sinusoidal());
  return Subject(info);
}

void SetDistances(const std::vector<double>& distances, v1::AnalyzeRequest* request) {
  v1::Tensor& ids = *request->mutable_distances()->mutable_ids();
  ids.set_dtype(v1::DATA_TYPE_FP64);
  ids.add_shape(static_cast<int64_t>(distances.size()));
  ids.set_data(distances.data(), distances.size() * sizeof(double));
}

namespace {

template <typename Element>
std::vector<double> Widened(const std::string& data) {
  std::vector<Element> elements(data.size() / sizeof(Element));
  std::memcpy(elements.data(), data.data(), elements.size() * sizeof(Element));
  return {elements.begin(), elements.end()};
}

}  // namespace

std::vector<double> Numbers(const v1::Tensor& tensor) {
  switch (tensor.dtype()) {
    case v1::DATA_TYPE_FP64: return Widened<double>(tensor.data());
    case v1::DATA_TYPE_INT32: return Widened<int32_t>(tensor.data());
    default: return Widened<float>(tensor.data());  // FP32: plots request no other types
  }
}

Subcommand AddPlot(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("plot", "Plots an encoding: curves over distance, frequencies, tables, biases");
  app->require_subcommand(1);
  const auto kinds = std::make_shared<std::vector<Subcommand>>(
      std::vector<Subcommand>{AddDecayPlot(*app), AddTablePlot(*app), AddBiasPlot(*app), AddFrequenciesPlot(*app),
                              AddSimilarityPlot(*app), AddWaveletsPlot(*app)});
  return {app, [kinds](Session& session) {
            for (const Subcommand& kind : *kinds) {
              if (kind.app->parsed()) return kind.run(session);
            }
            return UsageError("plot: give the kind of plot");
          }};
}

}  // namespace posenc::command
