// `posenc plot`: what its kinds share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "tools/posenc/deliver.h"
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

// Where the picture goes.
class PictureFlags {
 public:
  void Add(CLI::App& app);
  // Before anything is computed: that there is somewhere to put it.
  absl::Status Check(const Session& session) const;

  // Draws and says what was computed; without a file (with --json) prints the answer, the numbers that would be drawn.
  template <typename Answer, typename Chart>
  absl::Status Deliver(const Session& session, const Answer& answer, const Chart& chart) const {
    if (path_.empty()) return PrintJson(answer);
    return DrawAndTell(session, answer.info(), Commands(chart), CanvasOf(chart));
  }

 private:
  absl::Status DrawAndTell(const Session& session, const v1::AnswerInfo& info, const std::string& commands,
                           const Canvas& canvas) const;

  std::string path_;
};

// What Analyze is asked about: a rotary embedding or a sinusoidal encoding.
class AnalysisFlags {
 public:
  void Add(CLI::App& app);
  // Without distances.
  absl::StatusOr<v1::AnalyzeRequest> Get() const;

 private:
  RotaryFlags rotary_;
  v1::Sinusoidal sinusoidal_;
  v1::AnalyzeRequest request_;  // only its seq_len
};

// "rotary: rope_type llama3, rope_theta 500000, ..." or "sinusoidal: dim 512, ...".
std::string Subject(const v1::AnalyzeRequest& request, const v1::AnswerInfo& info);
std::string Subject(const v1::AnswerInfo& info);

void SetDistances(const std::vector<double>& distances, v1::AnalyzeRequest* request);

// Elements of any type as numbers.
std::vector<double> Numbers(const v1::Tensor& tensor);

}  // namespace posenc::command
