// What becomes of a load test's results: a summary or JSON, files, and whether they are good enough.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/command/session.h"
#include "client/load/results.h"

namespace posenc::command {

class LoadOutput {
 public:
  void Add(CLI::App& app);
  // Before the work is done: that --baseline can be read and the numbers are numbers.
  absl::Status Check() const;
  // FAILED_PRECONDITION, said after the reports, where an answer was wrong, no call succeeded, a search found no rate
  // or a figure is worse than the baseline's.
  absl::Status Deliver(const Session& session, const load::Results& results) const;

 private:
  std::string json_, csv_, steps_csv_, hgrm_, html_, baseline_, max_regression_ = "5%";
};

// Results as -o writes them.
absl::StatusOr<load::Results> ReadResults(const std::string& path);

}  // namespace posenc::command
