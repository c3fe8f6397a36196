#include "tools/load/machine.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "tools/load/clock.h"

namespace posenc::load {
namespace {

constexpr size_t kCopied = size_t{64} << 20;     // copied by each thread; larger than caches
constexpr size_t kMostCopied = size_t{1} << 30;  // limit for all threads, sources plus targets
constexpr int kRounds = 4;                       // the first one touches the pages and is not measured

constexpr double kProbeSeconds = 0.3;
constexpr double kGapUs = 50;  // an interrupt takes less; another thread takes more

// Computes for kProbeSeconds on whatever processor the scheduler gives.
Noise Probe() {
  const Clock::time_point begin = Clock::now();
  const double cpu = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
  Noise noise;
  Clock::time_point before = begin, now = begin;
  while (Seconds(now - begin) < kProbeSeconds) {
    now = Clock::now();
    const double gap = 1e6 * Seconds(now - before);
    if (gap > kGapUs) noise.longest_us = std::max(noise.longest_us, gap);
    before = now;
  }
  const double got = CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  noise.share = std::clamp(1 - got / Seconds(now - begin), 0.0, 1.0);
  return noise;
}

}  // namespace

Noise MeasureNoise() {
  std::vector<Noise> seen(std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
  std::vector<std::thread> team;
  for (Noise& one : seen) team.emplace_back([&one] { one = Probe(); });
  for (std::thread& thread : team) thread.join();
  Noise noise;
  for (const Noise& one : seen) {
    noise.share += one.share / static_cast<double>(seen.size());
    noise.longest_us = std::max(noise.longest_us, one.longest_us);
  }
  return noise;
}

double MeasureMemoryBandwidth() {
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1U, 64U);
  const size_t bytes = std::min(kCopied, kMostCopied / 2 / threads);
  Clock::time_point begin;
  double best = 0;
  int round = 0;
  std::barrier together(threads, [&]() noexcept {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - begin).count();
    if (round++ > 1) best = std::max(best, 2.0 * static_cast<double>(bytes) * threads / seconds);
    begin = now;
  });
  std::vector<std::thread> team;
  for (unsigned i = 0; i < threads; ++i) {
    team.emplace_back([&] {
      std::vector<char> from(bytes, 1), to(bytes);
      together.arrive_and_wait();
      for (int n = 0; n < kRounds; ++n) {
        std::memcpy(to.data(), from.data(), bytes);
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : team) thread.join();
  return best;
}

}  // namespace posenc::load
