// Results as one page that needs no other file: pictures, drawn by the reader's browser, and tables.
#pragma once

#include <string>

#include "tools/load/results.h"

namespace posenc::load {

std::string ToHtml(const Results& results);

// What the page's pictures show, as JSON without "<", for page/report.js.
std::string PictureData(const Results& results);

}  // namespace posenc::load
