// Results as a summary for a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/load/results.h"

namespace posenc::load {

// Plain text without colours, warnings first. Lines have at most 100 columns unless names are long.
std::string ToText(const Results& results);

// Number formats of reports: microseconds as milliseconds with four digits, "12.34"; 12345.6 as "12,346"; bytes per
// second as "1.23 GB/s"; a share as "1.2 %".
std::string Milliseconds(double microseconds);
// "-" if too few calls stand behind the percentile; 100 is the maximum.
std::string Time(const Histogram& histogram, double percentile);
std::string Grouped(double number);
std::string BytesPerSecond(double bytes);
std::string Percent(double share);

// The times of a measurement, with their names in reports; a whole one first, then its parts.
std::vector<std::pair<const char*, const Histogram*>> TimesOf(const Measurement& measured);

}  // namespace posenc::load
