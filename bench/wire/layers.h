// Rows about the decode steps of many layers in one call, beside one call of as many bytes, and beside a call for each.
#pragma once

#include <string>

#include "bench/measure.h"

namespace posenc::bench {

void MeasureLayers(const std::string& posenc, const Effort& effort);

}  // namespace posenc::bench
