// Buffer pool for answers: page faults of fresh memory would cost a large answer as much as its computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace posenc::server {

// Thread-safe. Standard types only, so that it runs under ThreadSanitizer.
class BufferPool {
 public:
  struct Block {
    std::byte* data;
    size_t capacity;
  };
  struct Counters {
    int64_t reused = 0;     // blocks taken from the pool
    int64_t allocated = 0;  // blocks taken from the system; blocks under 64 KiB count in neither
    int64_t bytes = 0;      // free bytes held by the pool now
  };

  // Keeps at most max_bytes of free blocks; evicts the least recently returned first.
  explicit BufferPool(size_t max_bytes) : max_bytes_(max_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns a block of at least `size` bytes, at most an eighth more, uninitialized. Throws std::bad_alloc.
  Block Take(size_t size);
  // Takes ownership.
  void Give(Block block);
  Counters counters() const;

 private:
  struct Kept {
    std::byte* data;
    uint64_t given;  // value of gives_ when it was returned
  };

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<size_t, std::deque<Kept>> kept_;  // by capacity, oldest block first; no deque is empty
  uint64_t gives_ = 0;
  Counters counters_;
};

}  // namespace posenc::server
