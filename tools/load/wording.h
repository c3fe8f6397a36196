// Sentences about a run that the text report and the HTML report share.
#pragma once

#include <string>
#include <vector>

#include "tools/load/results.h"

namespace posenc::load {

// "Latency at 500/s", "Highest rate with p99=5ms".
std::string Title(const Results& results);
// One text per kind of call: "ApplyRotary, unary, bf16, 1 x 1 tokens, 32 + 8 heads of 128".
std::vector<std::string> Workload(const Results& results);

// "met", "not met" or "unclear"; empty if the run is no search.
const char* VerdictOf(const Step& step);
// Returns what decided the verdict: the interval of the share of calls over the limit ("0.21 .. 0.64 % over, 1 %
// allowed"), the share of lost calls, or that the client could not offer the rate.
std::string Evidence(const Step& step);

// Sentences with a search's range, its share of the closed loop's peak, and what the time was spent on if that share is
// small.
std::vector<std::string> SearchAnswer(const Results& results);
// How busy the machine was before the run.
std::string NoiseText(const Noise& noise);

}  // namespace posenc::load
