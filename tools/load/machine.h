// State of the client's machine before a run.
#pragma once

#include "tools/load/results.h"

namespace posenc::load {

// Bandwidth of copying by all processors, in bytes per second, reads plus writes. Takes a fraction of a second.
double MeasureMemoryBandwidth();

// How much of the processors others take: one thread per processor computes for 0.3 seconds and notes when it could
// not.
Noise MeasureNoise();

}  // namespace posenc::load
