// Memory for answers, used again and again: fresh pages would cost a large answer as much as its computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace posenc::server {

// Thread-safe. Standard types only, so that it runs under ThreadSanitizer.
class AnswerPool {
 public:
  struct Block {
    std::byte* data;
    size_t capacity;
  };
  struct Counters {
    int64_t reused = 0;     // taken from the pool
    int64_t allocated = 0;  // taken from the system; those that are too small to be kept are in neither
    int64_t bytes = 0;      // kept now
  };

  // Keeps at most max_bytes; what was not used for longest goes first.
  explicit AnswerPool(size_t max_bytes) : max_bytes_(max_bytes) {}
  ~AnswerPool();
  AnswerPool(const AnswerPool&) = delete;
  AnswerPool& operator=(const AnswerPool&) = delete;

  // At least `size` bytes, at most an eighth more, with anything in them. Throws std::bad_alloc.
  Block Take(size_t size);
  void Give(Block block);
  Counters counters() const;

 private:
  struct Kept {
    std::byte* data;
    uint64_t given;  // when, in Give()s
  };

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<size_t, std::deque<Kept>> kept_;  // by capacity, the last given last; no deque is empty
  uint64_t gives_ = 0;
  Counters counters_;
};

}  // namespace posenc::server
