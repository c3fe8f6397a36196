#include "tools/load/bandwidth.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace posenc::load {
namespace {

constexpr size_t kBytes = size_t{64} << 20;     // copied by each thread; larger than caches
constexpr size_t kMostBytes = size_t{1} << 30;  // limit for all threads, sources plus targets
constexpr int kRounds = 4;                      // the first one touches the pages and is not measured

}  // namespace

double MeasureMemoryBandwidth() {
  using Clock = std::chrono::steady_clock;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1U, 64U);
  const size_t bytes = std::min(kBytes, kMostBytes / 2 / threads);
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
