// Shared parts of the kinds of `posenc plot`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/messages.h"
#include "tools/posenc/plot/charts.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {

Subcommand AddDecayPlot(CLI::App& plot);
Subcommand AddFrequenciesPlot(CLI::App& plot);
Subcommand AddSimilarityPlot(CLI::App& plot);
Subcommand AddTablePlot(CLI::App& plot);
Subcommand AddBiasPlot(CLI::App& plot);
Subcommand AddWaveletsPlot(CLI::App& plot);

// The flag of the output file.
class PictureFlags {
 public:
  void Add(CLI::App& app);
  // Call it before computing: returns a usage error if there is neither a valid file name nor --json, or if something
  // else is missing.
  absl::Status Check(const Session& session, Missing missing) const;

  // Draws the picture and prints what was computed. Without a file (requires --json), prints the answer, which has the
  // plotted numbers.
  template <typename Answer, typename Chart>
  absl::Status Deliver(const Session& session, const Answer& answer, Chart chart) const {
    if (path_.empty()) return PrintJson(session, answer);
    if (!title_.empty()) chart.title = title_;
    chart.width = width_;
    chart.height = height_;
    return DrawAndTell(session, answer.info(), Commands(chart), CanvasOf(chart));
  }

 private:
  absl::Status DrawAndTell(const Session& session, const v1::AnswerInfo& info, const std::string& commands,
                           const Canvas& canvas) const;

  std::string path_, title_;
  int width_ = 0, height_ = 0;  // 0: the chart's own
};

// "llama-3.1-8b" of a file of that name; the name of the folder if the file has a general one, such as config.json.
// Empty without a path.
std::string ModelName(const std::string& path);

// "llama-3.1-8b (llama3)": the model and its rope_type, as far as they are known.
std::string TypedName(const std::string& model, const v1::AnswerInfo& info);

// "Table of a rotary embedding: llama-3.1-8b (llama3)".
std::string RotaryTitle(const std::string& what, const std::string& model, const v1::AnswerInfo& info);

// Lengths in tokens that a model was trained on and extended to by its scaling, with their names for a legend: as far
// as the answer's plan and the model's config.json say.
// `model`: begins the names, if it is not empty.
std::vector<Mark> Lengths(const std::string& model, const v1::AnalyzeRequest& request, const v1::AnswerInfo& info);
// Appends the marks. Marks of equal values become one with both names.
void AddMarks(std::vector<Mark> more, std::vector<Mark>* marks);

// Flags of an Analyze request's subject: a rotary embedding or a sinusoidal encoding.
class AnalysisFlags {
 public:
  void Add(CLI::App& app);
  // Returns the subject if no flag gives one.
  Missing WhatIsMissing() const;
  // Returns the request without distances.
  absl::StatusOr<v1::AnalyzeRequest> Get() const;
  // Returns the request with the model of --overlay in place of its own; absent without --overlay.
  absl::StatusOr<std::optional<v1::AnalyzeRequest>> GetOverlay(const v1::AnalyzeRequest& request) const;

  // "Wavelength of each pair: llama-3.1-8b (llama3)".
  std::string Title(const std::string& what, const v1::AnswerInfo& info) const;
  std::string name() const { return ModelName(rotary_.model_path()); }
  bool has_overlay() const { return !overlay_.empty(); }
  std::string overlay_name() const { return ModelName(overlay_); }

 private:
  RotaryFlags rotary_;
  std::string overlay_;
  v1::Sinusoidal sinusoidal_;
  v1::AnalyzeRequest request_;  // only seq_len is used
};

// Returns "rotary: rope_type llama3, rope_theta 500000, ..." or "sinusoidal: dim 512, ...".
std::string Subject(const v1::AnalyzeRequest& request, const v1::AnswerInfo& info);
std::string Subject(const v1::AnswerInfo& info);

void SetDistances(const std::vector<double>& distances, v1::AnalyzeRequest* request);

// Converts the elements of an FP64, INT32 or FP32 tensor to double.
std::vector<double> Numbers(const v1::Tensor& tensor);

}  // namespace posenc::command
