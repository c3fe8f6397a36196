// What becomes of a load test's results: a summary or JSON, files, and whether they are good enough.
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
  // Before the work is done: that the numbers are numbers, and what --baseline says.
  absl::StatusOr<load::Baseline> Check() const;
  // FAILED_PRECONDITION, said after the reports, where an answer was wrong, none was verified though some were to be,
  // no call succeeded, a search found no rate, or a figure is worse than the baseline's or cannot be compared with it.
  absl::Status Deliver(const Session& session, const load::Results& results, const load::Baseline& baseline) const;

  static constexpr char kGroup[] = "Results";  // of the help, and of what a merge takes

 private:
  std::string json_, html_, baseline_, max_regression_ = "5%";
};

// Results as -o writes them.
absl::StatusOr<load::Results> ReadResults(const std::string& path);

}  // namespace posenc::command
