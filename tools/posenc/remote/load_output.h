// Output of a load test's results: a summary or JSON, files, and the comparison with a baseline.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/load/compare.h"
#include "tools/load/results.h"
#include "tools/posenc/session.h"

namespace posenc::command {

class LoadOutput {
 public:
  void Add(CLI::App& app);
  // Call it before the load test: checks the flag values and that the files can be written, and reads --baseline.
  absl::StatusOr<load::Baseline> Check() const;
  // Compares `all` with the baseline and writes the reports first, also the others if one cannot be written. Then
  // returns that error, or FAILED_PRECONDITION if an answer was wrong, no call succeeded, none of the answers to be
  // verified was verified, a search found no rate, or a figure is worse than the baseline's or cannot be compared with
  // it.
  absl::Status Deliver(const Session& session, const load::Baseline& baseline, load::Results* all) const;

  static constexpr char kGroup[] = "Results";  // help group; `load merge` accepts only these flags

 private:
  std::string json_, html_, baseline_, max_regression_ = "5%";
};

// Reads results that -o wrote. Errors name the file.
absl::StatusOr<load::Results> ReadResults(const std::string& path);

}  // namespace posenc::command
