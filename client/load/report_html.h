// Results as one page that needs no other file: pictures, drawn by the reader's browser, and tables.
#pragma once

#include <optional>
#include <string>

#include "client/load/results.h"

namespace posenc::load {

std::string ToHtml(const Results& results);

// A latency objective, "p99=5ms".
struct Objective {
  std::string name;       // "p99"
  double percentile = 0;  // 0..100
  double microseconds = 0;
};

// What the run was asked to hold, by its setting "slo"; absent if there is none, or none that can be read.
std::optional<Objective> ObjectiveOf(const Results& results);

// What the page's pictures show, as JSON without "<", for page/report.js.
std::string PictureData(const Results& results);

}  // namespace posenc::load
