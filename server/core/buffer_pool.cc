#include "server/core/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <vector>

namespace posenc::server {
namespace {

// Bytes. Smaller blocks come from malloc, which caches them itself.
constexpr size_t kLeastKept = size_t{64} << 10;
constexpr size_t kHugePage = size_t{2} << 20;

// Rounds up to a size class; there are eight per power of two.
size_t Capacity(size_t size) {
  if (size < kLeastKept) return std::max<size_t>(size, 1);
  const size_t step = std::bit_floor(size) / 8;
  return (size + step - 1) / step * step;
}

std::byte* Allocate(size_t capacity) {
  if (capacity < kLeastKept) {
    void* data = std::malloc(capacity);
    if (data == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(data);
  }
  void* data = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  // Huge pages, if the kernel grants them: one page-table walk per 2 MiB instead of one per 4 KiB.
  if (capacity >= kHugePage) madvise(data, capacity, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

void Free(std::byte* data, size_t capacity) {
  if (capacity < kLeastKept) {
    std::free(data);
  } else {
    munmap(data, capacity);
  }
}

}  // namespace

BufferPool::~BufferPool() {
  for (const auto& [capacity, blocks] : kept_) {
    for (const Kept& block : blocks) Free(block.data, capacity);
  }
}

BufferPool::Block BufferPool::Take(size_t size) {
  const size_t capacity = Capacity(size);
  if (capacity < kLeastKept) return {Allocate(capacity), capacity};
  {
    std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(capacity); found != kept_.end()) {
      const Kept block = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) kept_.erase(found);
      ++counters_.reused;
      counters_.bytes -= static_cast<int64_t>(capacity);
      return {block.data, capacity};
    }
    ++counters_.allocated;
  }
  return {Allocate(capacity), capacity};
}

void BufferPool::Give(Block block) {
  std::vector<Block> freed;
  if (block.capacity < kLeastKept || block.capacity > max_bytes_) {
    Free(block.data, block.capacity);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    kept_[block.capacity].push_back({block.data, ++gives_});
    counters_.bytes += static_cast<int64_t>(block.capacity);
    while (static_cast<size_t>(counters_.bytes) > max_bytes_) {
      const auto oldest = std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
        return a.second.front().given < b.second.front().given;
      });
      freed.push_back({oldest->second.front().data, oldest->first});
      counters_.bytes -= static_cast<int64_t>(oldest->first);
      oldest->second.pop_front();
      if (oldest->second.empty()) kept_.erase(oldest);
    }
  }
  for (const Block& old : freed) Free(old.data, old.capacity);
}

BufferPool::Counters BufferPool::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace posenc::server
