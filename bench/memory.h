// Memory for measurements: every page touched, and huge pages where the system grants them, so that the walks through
// page tables, which depend on what ran before, do not disturb.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace posenc::bench {

using Memory = std::shared_ptr<std::byte>;
inline constexpr size_t kHugePage = size_t{2} << 20;

// Filled with `size` bytes of small finite numbers, whatever the float type.
inline Memory Allocate(size_t size) {
  const size_t page = size >= kHugePage ? kHugePage : 4096;
  const size_t rounded = (size + page - 1) / page * page;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(page, rounded)), std::free);
  if (page == kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  // 0x3e.. and 0x3f.. as upper bytes are numbers around 1 in float32, float16 and bfloat16.
  for (size_t i = 0; i < rounded; ++i) memory.get()[i] = static_cast<std::byte>(i % 2 == 0 ? i * 37 : 0x3e + i % 4 / 2);
  return memory;
}

}  // namespace posenc::bench
