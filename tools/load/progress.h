// Live counts of a run, in shared memory: one process adds to them and another may read them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace posenc::load {

struct Progress {
  // Latency histogram with four buckets per power of two of microseconds: precise enough for a progress line.
  static constexpr size_t kBuckets = 4 * 34;

  std::atomic<int64_t> started = 0, succeeded = 0, failed = 0, skipped = 0;
  std::array<std::atomic<int64_t>, kBuckets> latency = {};

  static size_t BucketOf(int64_t microseconds) {
    const auto value = static_cast<uint64_t>(std::max<int64_t>(microseconds, 4));
    const int exponent = std::bit_width(value) - 1;
    return std::min<size_t>(4 * (exponent - 2) + ((value >> (exponent - 2)) & 3), kBuckets - 1);
  }
  // Middle of a bucket, in microseconds.
  static int64_t MiddleOf(size_t bucket) {
    const int64_t width = int64_t{1} << (bucket / 4);
    return static_cast<int64_t>(4 + bucket % 4) * width + width / 2;
  }
  void Succeeded(int64_t latency_us) {
    succeeded.fetch_add(1, std::memory_order_relaxed);
    latency[BucketOf(latency_us)].fetch_add(1, std::memory_order_relaxed);
  }
};
static_assert(std::atomic<int64_t>::is_always_lock_free);  // required for sharing between processes

}  // namespace posenc::load
