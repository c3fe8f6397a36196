// Results as a summary for a terminal.
#pragma once

#include <string>

#include "tools/load/results.h"

namespace posenc::load {

// Plain text without colours, warnings first. Lines have at most 100 columns unless names are long.
std::string ToText(const Results& results);

// Number formats of reports: microseconds as milliseconds with four digits, "12.34"; 12345.6 as "12,346"; bytes per
// second as "1.23 GB/s"; a share as "1.2 %".
std::string Milliseconds(double microseconds);
std::string Latency(const Measurement& measured, double percentile);  // "-" if no call succeeded
std::string Grouped(double number);
std::string BytesPerSecond(double bytes);
std::string Percent(double share);

}  // namespace posenc::load
