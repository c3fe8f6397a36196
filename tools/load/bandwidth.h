// How fast this machine's memory is.
#pragma once

namespace posenc::load {

// Bytes a second, read and written, while all processors copy. Takes a quarter of a second or so.
double MeasureMemoryBandwidth();

}  // namespace posenc::load
