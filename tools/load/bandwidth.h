// Measures this machine's memory bandwidth.
#pragma once

namespace posenc::load {

// Memory bandwidth in bytes per second, reads plus writes, while all processors copy. Blocks for about 0.25 s.
double MeasureMemoryBandwidth();

}  // namespace posenc::load
