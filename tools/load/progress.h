// What a run looks like while it runs: counts that one process adds to and another may read, in memory that they share.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace posenc::load {

struct Progress {
  // Latencies by size, four buckets to a power of two of microseconds: enough for a glance.
  static constexpr size_t kBuckets = 4 * 34;

  std::atomic<int64_t> started = 0, succeeded = 0, failed = 0, skipped = 0;
  std::array<std::atomic<int64_t>, kBuckets> latency = {};

  static size_t BucketOf(int64_t microseconds) {
    const auto value = static_cast<uint64_t>(std::max<int64_t>(microseconds, 4));
    const int exponent = std::bit_width(value) - 1;
    return std::min<size_t>(4 * (exponent - 2) + ((value >> (exponent - 2)) & 3), kBuckets - 1);
  }
  // The middle of a bucket.
  static int64_t MiddleOf(size_t bucket) {
    const int64_t width = int64_t{1} << (bucket / 4);
    return static_cast<int64_t>(4 + bucket % 4) * width + width / 2;
  }
  void Succeeded(int64_t latency_us) {
    succeeded.fetch_add(1, std::memory_order_relaxed);
    latency[BucketOf(latency_us)].fetch_add(1, std::memory_order_relaxed);
  }
};
static_assert(std::atomic<int64_t>::is_always_lock_free);  // else it could not be shared between processes

}  // namespace posenc::load
