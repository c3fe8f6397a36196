// Conversions between clock durations and numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace posenc::load {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }
inline int64_t Microseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}
inline Clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Reading of a processor-time clock in seconds; 0 if it cannot be read.
inline double CpuSeconds(clockid_t clock) {
  timespec time = {};
  return clock_gettime(clock, &time) == 0 ? static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)
                                          : 0;
}

}  // namespace posenc::load
