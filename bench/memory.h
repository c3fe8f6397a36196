// Memory for measurements. All pages are touched, and huge pages are used if the system grants them, so that page-table
// walks, which depend on earlier runs, do not disturb the timing.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace posenc::bench {

using Memory = std::shared_ptr<std::byte>;
inline constexpr size_t kHugePage = size_t{2} << 20;

// Returns at least `size` bytes that are small finite numbers in float32, float16 and bfloat16. 4 KiB aligned, from 2
// MiB on 2 MiB aligned.
inline Memory Allocate(size_t size) {
  const size_t page = size >= kHugePage ? kHugePage : 4096;
  const size_t rounded = (size + page - 1) / page * page;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(page, rounded)), std::free);
  if (page == kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  // With 0x3e or 0x3f as the upper byte, float32, float16 and bfloat16 are numbers around 1.
  for (size_t i = 0; i < rounded; ++i) memory.get()[i] = static_cast<std::byte>(i % 2 == 0 ? i * 37 : 0x3e + i % 4 / 2);
  return memory;
}

}  // namespace posenc::bench
