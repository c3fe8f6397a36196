// Results as comma-separated values (RFC 4180, lines ending with \n), for spreadsheets: docs/load-report.md says what
// each column is.
#pragma once

#include <string>

#include "tools/load/results.h"

namespace posenc::load {

// A line for each second of the run.
std::string TimelineCsv(const Results& results);

// A line for each step.
std::string StepsCsv(const Results& results);

}  // namespace posenc::load
