// Histograms in HdrHistogram's two text formats.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/load/histogram.h"

namespace posenc::load {

// V2, compressed, in base64: exact. Such texts are also what logs of histograms hold, a line each.
std::string ToV2(const Histogram& histogram);
// INVALID_ARGUMENT if that is no such text, or of a histogram of another resolution than Histogram's, or of doubles.
absl::StatusOr<Histogram> FromV2(std::string_view text);

// The distribution by percentile as outputPercentileDistribution writes it, with five lines for each halving of the
// distance to 100 %. Values are divided by `unit`.
std::string ToHgrm(const Histogram& histogram, double unit);
// The histogram that has the same distribution at the lines of such a text, and no values between them.
absl::StatusOr<Histogram> FromHgrm(std::string_view text, double unit);

}  // namespace posenc::load
