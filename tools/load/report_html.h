// Results as one self-contained HTML page: charts, drawn by the browser, and tables.
#pragma once

#include <string>

#include "tools/load/results.h"

namespace posenc::load {

std::string ToHtml(const Results& results);

// Data of the page's charts as JSON without "<", for page/report.js.
std::string PictureData(const Results& results);
// JSON without "<", for a script element.
std::string InScript(const std::string& json);

}  // namespace posenc::load
