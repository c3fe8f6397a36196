// operator new and delete of the server, and GMP's allocation: malloc and free, reported to the current call's
// MemoryAccount.
#include <gmp.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "posenc/base/memory_account.h"
#include "server/core/signals.h"

namespace {

using posenc::MemoryAccount;

constexpr size_t kHeader = sizeof(size_t);  // of malloc's, before each block
// Blocks from this size on are refused if they do not fit, where LargeBlocksMayBeRefused applies.
constexpr size_t kLarge = 32 << 10;

int64_t BytesOf(void* block) { return static_cast<int64_t>(malloc_usable_size(block) + kHeader); }

void* Counted(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  MemoryAccount* const account = posenc::CurrentMemoryAccount();
  if (account == nullptr) return block;
  const int64_t bytes = BytesOf(block);
  const bool may_be_refused = bytes >= static_cast<int64_t>(kLarge) && posenc::LargeBlocksMayBeRefused::Applies();
  if (!account->Add(bytes, may_be_refused) && may_be_refused) {
    std::free(block);  // untouched: its pages were never resident
    throw std::bad_alloc();
  }
  return block;
}

// Not inlined: GCC would warn of free() for memory from operator new.
[[gnu::noinline]] void Release(void* block) {
  MemoryAccount* const account = posenc::CurrentMemoryAccount();
  if (account != nullptr && block != nullptr) account->Remove(BytesOf(block));
  std::free(block);
}

// Aborts without memory, like GMP's own functions: no exception may pass through C.
void* CountedForGmp(void* block) {
  if (block == nullptr) std::abort();
  if (MemoryAccount* const account = posenc::CurrentMemoryAccount(); account != nullptr) account->Add(BytesOf(block));
  return block;
}

void* Reallocated(void* block, size_t, size_t size) {
  MemoryAccount* const account = posenc::CurrentMemoryAccount();
  if (account != nullptr) account->Remove(BytesOf(block));
  return CountedForGmp(std::realloc(block, size));
}

}  // namespace

namespace posenc::server {

void CountGmpMemory() {
  mp_set_memory_functions([](size_t size) { return CountedForGmp(std::malloc(size)); }, Reallocated,
                          [](void* block, size_t) { Release(block); });
}

}  // namespace posenc::server

// The other forms (arrays, nothrow, sized) call these.
void* operator new(size_t size) { return Counted(std::malloc(std::max<size_t>(size, 1))); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  if (size > PTRDIFF_MAX) throw std::bad_alloc();
  return Counted(std::aligned_alloc(align, (std::max<size_t>(size, 1) + align - 1) / align * align));
}
void operator delete(void* block) noexcept { Release(block); }
void operator delete(void* block, size_t) noexcept { Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { Release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { Release(block); }

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)  // Clang has no such macro, and they do no harm
// AddressSanitizer's own forms do not call these, so that it would report blocks of one kind that are freed as the
// other.
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept { return operator new(size, nothrow); }
void operator delete[](void* block) noexcept { Release(block); }
void operator delete[](void* block, size_t) noexcept { Release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { Release(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { Release(block); }
#endif
