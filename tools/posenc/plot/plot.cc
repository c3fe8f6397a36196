#include "tools/posenc/plot/plot.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/posenc/embedding_flags.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"

namespace posenc::command {

void PictureFlags::Add(CLI::App& app) {
  app.add_option("-o,--out,--output", path_,
                 "Output picture, FILE.png or FILE.svg; without it --json prints the plotted numbers")
      ->type_name("FILE");
}

absl::Status PictureFlags::Check(const Session& session) const {
  if (!path_.empty()) return FormatOf(path_).status();
  if (session.json()) return absl::OkStatus();
  return UsageError("no output is given: use --output FILE.png or FILE.svg, or --json for the numbers");
}

absl::Status PictureFlags::DrawAndTell(const Session& session, const v1::AnswerInfo& info, const std::string& commands,
                                       const Canvas& canvas) const {
  POSENC_ASSIGN_OR_RETURN(const PictureFormat format, FormatOf(path_));
  POSENC_RETURN_IF_ERROR(Draw(commands, canvas, format, path_));
  if (!session.json()) std::printf("%s: %d x %d\n", path_.c_str(), canvas.width, canvas.height);
  return PrintInfo(session, info);
}

void AnalysisFlags::Add(CLI::App& app) {
  rotary_.Add(app);
  AddSinusoidalFlags(app, &sinusoidal_);
  AddFieldFlags(app, "Lengths", &request_,
                {{"seq_len", "dynamic, longrope: sequence length; required for these types"}});
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
